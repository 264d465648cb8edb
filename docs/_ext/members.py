"""What the reference lists of a class: every public method and property that the package defines,
its mixins' too.
"""

import inspect
from dataclasses import dataclass
from functools import cached_property


def own_members(cls: type) -> tuple[list[str], list[str]]:
    """Return the names of the public methods and properties of a class, those of its bases inside
    `bbl` included.

    They come from ``dir(cls)``, so that nothing has to be listed by hand. What a base outside the
    package brings along (float, Exception, scikit-learn's estimators) is described by its own
    reference.
    """
    methods = []
    properties = []
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        is_property = isinstance(member, property | cached_property)
        function = getattr(member, "fget", None) or getattr(member, "func", None) or member
        function = getattr(function, "__func__", function)  # of class methods and static methods
        package = (getattr(function, "__module__", None) or "").split(".")[0]
        if name.startswith("_") or package != "bbl" or inspect.isclass(function):
            continue
        if is_property:
            properties.append(name)
        elif inspect.isroutine(function):
            methods.append(name)
    return methods, properties


@dataclass(frozen=True)
class OwnMembers:
    """`own_members` of a class by its full name: what the template of a class page calls (a
    function is no setting).
    """

    def __call__(self, fullname: str) -> tuple[list[str], list[str]]:
        from sphinx.ext.autosummary import import_by_name

        return own_members(import_by_name(fullname)[1])


def check(app, env) -> None:
    """Warn of each public member of a class in the reference that no page describes."""
    from sphinx.util import logging

    known = env.get_domain("py").objects
    for fullname, entry in list(known.items()):
        if entry.objtype in ("class", "exception") and not entry.aliased:
            for name in sum(OwnMembers()(fullname), []):
                if f"{fullname}.{name}" not in known:
                    message = "%s.%s is not in the reference"
                    logging.getLogger(__name__).warning(
                        message, fullname, name, location=entry.docname
                    )


def setup(app) -> dict:
    """Hand the members of a class to its template, and look at the end whether any is missing."""
    app.config.autosummary_context["own_members"] = OwnMembers()
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True}
