"""For real: devices, profiling, running plans and measuring them. OpenVINO is imported when something runs."""

from loadmaster.runtime._devices import DeviceSpec, available, parse_devices
from loadmaster.runtime._measuring import Measurement
from loadmaster.runtime._session import Candidate, Session

__all__ = ["Candidate", "DeviceSpec", "Measurement", "Session", "available", "parse_devices"]
