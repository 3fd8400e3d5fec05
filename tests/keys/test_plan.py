"""Reading the text of a plan: strictly, so that no name and no literal can pass for an operator."""

from __future__ import annotations

import pytest

from mirrorlib.keys.tracing.plan import Node, UnreadablePlanError, join_ctes, parse_plan, walk

PLAN = """\
Project [a#1]
+- Filter (a#1 IN (list#2 []) AND exists#3 [a#1])
   :  :- Project [b#4]
   :  :  +- LocalRelation [b#4]
   :  +- LocalRelation [c#5]
   +- Join Inner, (a#1 = d#6)
      :- SubqueryAlias x
      :  +- LocalRelation [a#1]
      +- ~Relation [d#6] parquet
"""


def names(*nodes: Node) -> list[str]:
    """Name operators."""
    return [node.operator for node in nodes]


def test_a_plan_is_read_as_a_tree() -> None:
    """Children and the plans of subqueries are told apart."""
    root = parse_plan(PLAN)
    (condition,) = root.children
    (join,) = condition.children

    assert ("Project", " [a#1]") == (root.operator, root.text)
    assert ["Project", "LocalRelation"] == names(*condition.subplans)
    assert ["SubqueryAlias", "Relation"] == names(*join.children)
    assert [False, True] == [child.streaming for child in join.children]
    assert len(PLAN.splitlines()) == len(list(walk(root)))


def test_a_line_break_in_a_literal_belongs_to_its_operator() -> None:
    """Both lines are the operator's text."""
    root = parse_plan("Project [a\nb AS c#1]\n+- LocalRelation")

    assert " [a\nb AS c#1]" == root.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "project [a#1]",
        "Project\n+- a#1",
        "Project\n+- Filter\n+- Filter",
        "Project\n:- Filter",
        "Project\n   +- Filter\n+- Filter",
        "Join Inner\n:- A\n   +- B\n+- C",
        "Join Inner\n+- A\n:- B",
        "Project\n:  +- A",
        "Project\n      +- A",
        "Project\n+- A\n   :  +- B",
        "Project [a#1, ... 3 more fields]\n+- A",
        "Project [a#1]\n+- A\n... 200 more characters",
    ],
)
def test_what_does_not_parse_is_refused(text: str) -> None:
    """A branch where none can be, one that is missing, a text that was cut."""
    with pytest.raises(UnreadablePlanError):
        parse_plan(text)


@pytest.mark.parametrize("line", range(1, len(PLAN.splitlines())))
@pytest.mark.parametrize("fake", PLAN.splitlines()[1:])
def test_a_line_from_elsewhere_hides_no_operator(line: int, fake: str) -> None:
    """Put a line of the plan anywhere into it, as a literal could: it is refused, or all operators are there."""
    lines = PLAN.splitlines()
    text = "\n".join([*lines[:line], fake, *lines[line:]])
    try:
        found = sorted(names(*walk(parse_plan(text))))
    except UnreadablePlanError:
        return

    assert [name for name in sorted(names(*walk(parse_plan(PLAN)))) if name not in found] == []


def test_a_common_table_expression_stands_where_it_is_used() -> None:
    """Used twice, it is there twice."""
    root = join_ctes(
        parse_plan(
            "WithCTE\n:- CTERelationDef 7, false\n:  +- Relation [a#1]\n"
            "+- Join Inner\n   :- CTERelationRef 7, true, [a#1]\n   +- CTERelationRef 7, true, [a#2]"
        )
    )
    (join,) = root.children

    assert ["Relation", "Relation"] == [ref.children[0].operator for ref in join.children]


@pytest.mark.parametrize(
    "text",
    [
        "WithCTE\n:- CTERelationDef 7, false\n:  +- A\n+- CTERelationRef 8, true",
        "WithCTE\n:- CTERelationDef 7, false\n:  +- CTERelationRef 7, true\n+- CTERelationRef 7, true",
    ],
)
def test_odd_common_table_expressions_are_refused(text: str) -> None:
    """One that is not there, one that is recursive."""
    with pytest.raises(UnreadablePlanError):
        join_ctes(parse_plan(text))


def test_a_deep_plan_is_read() -> None:
    """A thousand operators need no thousand frames of Python."""
    text = "Project\n" + "\n".join("   " * depth + "+- Project" for depth in range(3000))

    assert 3001 == len(list(walk(parse_plan(text))))


def test_a_plan_without_measure_is_refused() -> None:
    """Forty queries, each of which uses the one before twice."""
    refs = "\n".join(
        f":- CTERelationDef {n}, false\n:  +- Union\n:     :- CTERelationRef {n - 1}, true\n:     +- CTERelationRef {n - 1}, true"
        for n in range(1, 40)
    )
    text = (
        f"WithCTE\n:- CTERelationDef 0, false\n:  +- Relation\n{refs}\n+- CTERelationRef 39, true"
    )

    with pytest.raises(UnreadablePlanError, match="too many operators"):
        join_ctes(parse_plan(text))
