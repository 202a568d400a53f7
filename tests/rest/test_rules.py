"""docs/rest.md has the rules and sections that code and tests cite, each once."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/rest.md").read_text()
FOLDERS = ("core", "server", "ffi", "python", "tests")
# "rule 30", "rules 11 and 13 to 15", in names "rule_30".
RULES = re.compile(r"\brules? (\d+(?:(?:, | and | to )\d+)*)", re.IGNORECASE)
RULE_IN_NAME = re.compile(r"(?<=[ _])rule_(\d+)_")
SECTIONS = re.compile(r"docs/rest\.md, (§\d[\d.]*(?:(?:, | and | to )§\d[\d.]*)*)")
SECTION_IN_NAME = re.compile(r"(?<=_)s(\d+(?:_\d+)?)_")


# What is built or installed here is not ours.
NOT_OURS = {"target", "node_modules"}


def sources():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".rs", ".py", ".sql", ".js") and not NOT_OURS.intersection(path.parts) and path != Path(__file__):
                # A citation may go over the end of a line of comment.
                yield path.relative_to(ROOT), re.sub(r"\n\s*(?://[/!]?|#|--)\s*", " ", path.read_text())


def cited_rules(text: str) -> set[int]:
    found = {int(number) for number in RULE_IN_NAME.findall(text)}
    for citation in RULES.findall(text):
        for part in re.split(r", | and ", citation):
            first, _, last = part.partition(" to ")
            found |= set(range(int(first), int(last or first) + 1))
    return found


def cited_sections(text: str) -> set[str]:
    cited = " ".join(SECTIONS.findall(text))
    found = {number.rstrip(".") for number in re.findall(r"§([\d.]+)", cited)}
    for name in re.findall(r"def (test_\w+)", text):
        found |= {number.replace("_", ".") for number in SECTION_IN_NAME.findall(name)}
    return found


def rules() -> list[int]:
    return [int(number) for number in re.findall(r"^(?:- )?\*\*Rule (\d+)\.\*\*", PAGE, re.MULTILINE)]


def sections() -> set[str]:
    found = set(re.findall(r"^(?:### |\| )?§(\d(?:\.\d)?)", PAGE, re.MULTILINE))
    authentication = PAGE.split("### §5 ")[1].split("### ")[0]
    return found | {f"5.{number}" for number in re.findall(r"^(\d+)\. ", authentication, re.MULTILINE)}


def test_rules_are_numbered_without_gaps():
    assert sorted(rules()) == list(range(1, 101))


def test_every_rule_that_is_cited_is_written():
    built = {number for number in rules() if f"- **Rule {number}.**" not in PAGE}
    for path, text in sources():
        missing = cited_rules(text) - built
        assert not missing, f"{path} cites rules that docs/rest.md does not have: {missing}"


def test_every_section_that_is_cited_is_written():
    for path, text in sources():
        missing = cited_sections(text) - sections()
        assert not missing, f"{path} cites sections that docs/rest.md does not have: {missing}"


def test_whoever_cites_a_rule_names_the_page():
    for path, text in sources():
        assert not RULES.search(text) or "docs/rest.md" in text, f"{path} cites a rule and does not say of which page"


def test_no_source_cites_what_is_not_in_the_tree():
    for path, text in sources():
        cited = re.search(r"\bdecisions?[ _]\d+|\bspecification §", text, re.IGNORECASE)
        assert cited is None, f"{path}: {cited}"


def test_citations_are_found():
    """If this fails, the tests above prove nothing."""
    text = "/// Rules 11 and 13 to 15, rule 2 (docs/rest.md, §4.1 to §4.4) fn rule_7_a()"
    text += " def test_s2_1_and_rule_55_x() def test_s3_y()"
    assert cited_rules(text) == {2, 7, 11, 13, 14, 15, 55}
    assert cited_sections(text) == {"4.1", "4.4", "2.1", "3"}
    found = [cited_rules(text) for _, text in sources()]
    assert len(set().union(*found)) > 60
