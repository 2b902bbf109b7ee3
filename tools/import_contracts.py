"""A contract of import-linter's kind: a package imports from another only what that exports.

``make lint`` runs it (the contracts are in pyproject.toml).
"""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

__all__ = ["PrivateModules"]


class PrivateModules(Contract):
    """No module imports a private module of another direct child of ``package``.

    A module is private if a part of its dotted name starts with one underscore: ``loadmaster.problem._ranks`` belongs
    to ``loadmaster.problem``, and to nobody else. Imports inside functions and for type checking count too.
    """

    type_name = "private_modules"

    package = fields.StringField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look at every import between two modules of the package."""
        package, broken = str(self.package), []
        for imported in sorted(graph.modules):
            home = _child(package, imported)
            if home is None or not any(map(_private, imported.split(".")[1:])):
                continue
            for importer in sorted(graph.find_modules_that_directly_import(imported)):
                if _child(package, importer) == home:
                    continue
                found = graph.get_import_details(importer=importer, imported=imported)
                broken.append((importer, imported, [detail["line_number"] for detail in found]))
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line per import, with what to do about it."""
        for importer, imported, lines in check.metadata["broken"]:
            where = ", ".join(f"l.{line}" for line in sorted(lines))
            output.print_error(f"- {importer} -> {imported} ({where})", bold=False)
        output.print_error(
            "Import the name from its package, and export it there if it is not exported yet.", bold=False
        )
        output.new_line()


def _child(package: str, module: str) -> str | None:
    """The direct child of the package that a module is or belongs to."""
    inside = module.removeprefix(f"{package}.")
    return None if inside == module else inside.partition(".")[0]


def _private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")
