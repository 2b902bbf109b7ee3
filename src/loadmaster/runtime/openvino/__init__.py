"""OpenVINO as the engine: devices, profiles, submodels, and plans that run."""
