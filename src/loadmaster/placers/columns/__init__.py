"""Column generation: bounds from prices on bundles and calls, and placements that meet them.

``frontier`` is for pipelines (``frontier/frontier.py``), ``calls`` for ``offload`` (``calls/calls.py``), ``convex`` for
pipelines of convex devices, whose sets it lists (``convex/convex.py``). The first two work on
the hypergraph of ``_nets.py``, along a narrow order of its classes (``_order.py``), and find the best bundle under
given prices by dynamic programming over the states of ``_states.py`` (``_pricing.py``). Column generation itself on
one page: ``plain.py``.
"""
