"""Code that shows an error: `try` with a handler that names what it caught must catch something,
each time it runs.
"""

import ast
import textwrap


class _Expect(ast.NodeTransformer):
    """Make a `try` fail that shows what it caught, and caught nothing."""

    def visit_Try(self, node):
        self.generic_visit(node)
        if is_expected(node):
            kinds = ", ".join(ast.unparse(handler.type) for handler in node.handlers)
            text = f"line {node.lineno}: the text says {kinds}, and nothing was raised"
            node.orelse = ast.parse(f"raise AssertionError({text!r})").body
        return node


def is_expected(node):
    """Return whether a node is a `try` that has to catch: its handlers name the error."""
    return (
        isinstance(node, ast.Try)
        and all(handler.name for handler in node.handlers)
        and not node.orelse
    )


def expecting(code, name):
    """Return compiled code in which every error that is shown has to occur."""
    tree = ast.fix_missing_locations(_Expect().visit(ast.parse(textwrap.dedent(code))))
    return compile(tree, name, "exec")


def until_last_error(code):
    """Return code up to its last `try` that shows an error; empty if it has none."""
    body = ast.parse(code).body
    last = max(
        (k for k, node in enumerate(body) if any(map(is_expected, ast.walk(node)))), default=-1
    )
    return ast.unparse(body[: last + 1])
