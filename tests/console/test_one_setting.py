"""One setting is changed at a terminal's page: typed, looked at, rolled out, and followed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.axe import DESK_AND_PHONE, needed, no_violations
from tests.console.fleet import DRIVER, HUB, NAMES, NODES
from tests.console.pages import PATIENCE_MS, sign_in
from tests.console.service import ControlService, now_ms

pytestmark = [pytest.mark.console, pytest.mark.usefixtures("fleet")]

OTHER = 12
# A further path is made by these: that is more than one setting.
_OF_FURTHER_PATH = {"neighbour", "remote", "convergence_layer", "local", "interface"}


def opened(page: Page) -> Locator:
    """Open the form at the driver's page."""
    page.get_by_role("button", name="Change a setting", exact=True).click()
    return page.get_by_role("form", name=f"Change a setting of {NAMES[DRIVER]}")


def choose(form: Locator, label: str, option: str) -> None:
    """Choose an option by its text."""
    form.get_by_role("combobox", name=label, exact=True).select_option(label=option)


def newest(service: ControlService) -> Any:
    """Return the newest rollout."""
    return service.call("GET", "/v1/rollouts")["rollouts"][0]


def test_a_weight_is_typed_looked_at_and_rolled_out_to_one(
    service: ControlService, page: Page
) -> None:
    needed()
    sign_in(page, service, at=f"terminals/{DRIVER}")
    form = opened(page)
    # The keyboard goes on in the form.
    expect(form.get_by_role("combobox", name="Of a", exact=True)).to_be_focused()
    expect(form.locator("datalist option[value=bulk]")).to_have_count(1)
    no_violations(page, DESK_AND_PHONE)
    name = form.get_by_role("combobox", name="Class", exact=True)
    weight = form.get_by_role("spinbutton", name="Weight")
    look = form.get_by_role("button", name="Look at the change")
    weight.fill("0")
    assert weight.evaluate("field => field.validity.rangeUnderflow")
    # What only the service finds wrong stands at its field, which has the focus.
    name.fill("bulk\x7f")
    weight.fill("5")
    look.click()
    expect(name).to_have_attribute("aria-invalid", "true", timeout=PATIENCE_MS)
    expect(name).to_be_focused()
    said = page.locator(f"#{name.get_attribute('aria-describedby')}")
    expect(said).to_have_text("must have no control characters")
    no_violations(page)
    name.fill("bulk")
    look.click()
    seen = page.get_by_role("region", name="What class bulk: weight would change")
    row = seen.get_by_role("row", name="class.bulk.weight")
    expect(row).to_contain_text("as the node has it", timeout=PATIENCE_MS)
    expect(row).to_contain_text("5")
    expect(name).not_to_have_attribute("aria-invalid", "true")
    # What is typed anew was not looked at.
    weight.fill("6")
    expect(seen).to_have_count(0)
    look.click()
    expect(row).to_contain_text("6", timeout=PATIENCE_MS)
    assert service.call("GET", "/v1/rollouts")["rollouts"] == []
    seen.get_by_role("button", name="Begin").click()
    followed = page.get_by_role("region", name="class bulk: weight", exact=True)
    # The service sends it to the terminal within seconds, which does not answer here.
    expect(followed).to_contain_text("1 sent", timeout=PATIENCE_MS)
    # Stages that no terminal is left for are not counted.
    expect(followed).to_contain_text("stage 1 of 1;")
    expect(form).to_have_count(0)
    expect(page.get_by_role("button", name="Change a setting", exact=True)).to_be_focused()
    no_violations(page)
    made = newest(service)
    assert made["settings"] == {"classes": [{"name": "bulk", "weight": 6}], "paths": []}
    assert sum(made["counts"].values()) == 1
    terminals = f"/v1/rollouts/{made['id']}/terminals"
    (only,) = service.call("GET", terminals)["terminals"]
    assert only["terminal"] == DRIVER
    page.once("dialog", lambda dialog: dialog.accept())
    followed.get_by_role("button", name="Abort and restore").click()
    expect(followed).to_contain_text("aborted", timeout=PATIENCE_MS)
    expect(followed).to_contain_text("1 restored", timeout=PATIENCE_MS)
    expect(page.get_by_text("class bulk: weight is aborted.")).to_have_attribute("role", "status")
    # The buttons are gone: the keyboard goes on in what is around them.
    expect(followed).to_be_focused()


def test_a_path_of_a_terminal_is_given_a_cost_and_then_those_of_its_beam(
    service: ControlService, page: Page
) -> None:
    sign_in(page, service, at=f"terminals/{DRIVER}")
    form = opened(page)
    choose(form, "Of a", "path")
    form.get_by_role("combobox", name="Path", exact=True).fill("satellite")
    choose(form, "Setting", "Cost: its bytes are paid for")
    look = form.get_by_role("button", name="Look at the change")
    # The service knows the paths that a terminal reports, and says which it has not.
    form.get_by_role("combobox", name="Path", exact=True).fill("lte")
    form.get_by_label("Budget, GB").fill("1")
    look.click()
    missing = page.get_by_text(f"{NAMES[DRIVER]} has reported no path lte")
    expect(missing).to_be_visible(timeout=PATIENCE_MS)
    form.get_by_role("combobox", name="Path", exact=True).fill("satellite")
    form.get_by_label("Budget, GB").fill("")
    expect(missing).to_have_count(0)
    # All of a table may be left out, but not everything at once.
    look.click()
    budget = form.get_by_label("Budget, GB")
    expect(budget).to_have_attribute("aria-invalid", "true", timeout=PATIENCE_MS)
    budget.fill("2.5")
    choose(form, "Renewed each", "month")
    choose(form, "For", "this one, then all others of its beam")
    form.get_by_label("Terminals of each stage").fill("1, 2")
    look.click()
    seen = page.get_by_role("region", name="What path satellite: meter would change")
    row = seen.get_by_role("row", name="path.satellite.meter.budget_bytes")
    expect(row).to_contain_text("2500000000", timeout=PATIENCE_MS)
    expect(seen).to_contain_text(f"Terminals: {len(NODES)}. The first is {NAMES[DRIVER]}")
    seen.get_by_role("button", name="Begin").click()
    followed = page.get_by_role("region", name="path satellite: meter", exact=True)
    expect(followed).to_contain_text("stage 1 of 3", timeout=PATIENCE_MS)
    made = newest(service)
    meter = {"budget_bytes": 2_500_000_000, "period": "month"}
    assert made["settings"] == {"classes": [], "paths": [{"name": "satellite", "meter": meter}]}
    path = f"/v1/rollouts/{made['id']}"
    rows = service.call("GET", path + "/terminals")["terminals"]
    assert [one["terminal"] for one in rows] == list(NODES)
    # A terminal that is in another rollout is not changed, and the page says by which.
    form = opened(page)
    form.get_by_role("combobox", name="Class", exact=True).fill("bulk")
    form.get_by_role("spinbutton", name="Weight").fill("7")
    form.get_by_role("button", name="Look at the change").click()
    page.get_by_role("button", name="Begin class bulk").click(timeout=PATIENCE_MS)
    told = f"terminal {DRIVER} is in rollout {made['id']}, not ended yet"
    expect(page.get_by_text(told)).to_be_visible(timeout=PATIENCE_MS)
    service.call("PUT", path + "/state", {"state": "aborted", "restore": True})
    expect(followed).to_contain_text("aborted", timeout=PATIENCE_MS)


def test_the_form_has_every_setting_of_the_api_with_its_bounds(
    service: ControlService, page: Page
) -> None:
    schemas = service.call("GET", "/openapi.json")["components"]["schemas"]
    sign_in(page, service, at=f"terminals/{DRIVER}")
    form = opened(page)
    for of, name, left_out in (
        ("class", "ClassSettings", {"name"}),
        ("path", "PathSettings", {"name", *_OF_FURTHER_PATH}),
    ):
        choose(form, "Of a", of)
        assert dict(fields(form)) == dict(members(schemas, schemas[name], left_out))
    page.get_by_role("button", name=f"Change a setting of gateway {HUB}").click()
    form = page.get_by_role("form", name=f"Change a setting of gateway {HUB}")
    # The terminal's other paths have entries of their own in its list.
    of_hub = members(schemas, schemas["AcceptedTerminal"], {"node", "path"})
    assert dict(fields(form)) == dict(of_hub)


def fields(form: Locator) -> Iterator[tuple[str, Any]]:
    """Yield the names of all settings' fields with their bounds, in the API's units."""
    setting = form.get_by_role("combobox", name="Setting", exact=True)
    own = {"name", ""}
    for place in range(setting.locator("option").count()):
        setting.select_option(index=place)
        for field in form.locator("input[name], select[name]").all():
            name = field.get_attribute("name") or ""
            if name in own:
                continue
            kind = field.evaluate("field => field.tagName + ' ' + field.type")
            if kind.startswith("SELECT"):
                options = field.locator("option:not([value=''])").all_text_contents()
                yield name, [True, False] if options == ["yes", "no"] else options
            elif kind.endswith("number"):
                label = field.evaluate("field => field.closest('label').textContent")
                times = 1e6 if "Mbit/s" in label else 1e9 if "GB" in label else 1
                ends = (field.get_attribute("min"), field.get_attribute("max"))
                yield name, tuple(round(float(end or "nan") * times, 9) for end in ends)
            else:
                yield name, "text"


def members(
    schemas: dict[str, Any], schema: dict[str, Any], left_out: set[str], within: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the members of a schema with their bounds; those of a table with its name before."""
    for name, of in schema["properties"].items():
        if name in left_out:
            continue
        kind = next(one for one in of.get("anyOf", [of]) if one.get("type") != "null")
        if "$ref" in kind:
            table = schemas[kind["$ref"].rpartition("/")[2]]
            yield from members(schemas, table, set(), f"{name}/")
        elif kind.get("type") == "boolean":
            yield within + name, [True, False]
        elif "enum" in kind:
            yield within + name, kind["enum"]
        elif kind["type"] in ("array", "string"):
            yield within + name, "text"
        else:
            yield within + name, (float(kind["minimum"]), float(kind["maximum"]))


def test_a_setting_is_taken_away_and_another_operators_stays(
    service: ControlService, page: Page
) -> None:
    path = f"/v1/terminals/{OTHER}/settings"
    service.call("PUT", path, {"classes": [{"name": "bulk", "weight": 5, "policy": "bonded"}]})
    sign_in(page, service, at=f"terminals/{OTHER}")
    card = page.get_by_role("region", name=re.compile("^Set from afar"))
    take_away = card.get_by_role("button", name="Take away class bulk: weight: 5")
    take_away.click(timeout=PATIENCE_MS)
    seen = card.get_by_role("region", name=f"What would change at {NAMES[OTHER]}")
    row = seen.get_by_role("row", name="class.bulk.weight")
    expect(row).to_contain_text("as the node has it", timeout=PATIENCE_MS)
    expect(seen.get_by_role("row")).to_have_count(2)
    # Somebody else is first: what they have set stays.
    theirs = {"name": "bulk", "weight": 5, "policy": "bonded", "metered": "never"}
    service.call("PUT", path, {"classes": [theirs]})
    seen.get_by_role("button", name="Set it").click()
    told = card.get_by_role("alert").filter(has_text="somebody else was first")
    expect(told).to_be_visible(timeout=PATIENCE_MS)
    assert service.call("GET", path)["classes"] == [theirs]
    take_away.click()
    seen.get_by_role("button", name="Set it").click(timeout=PATIENCE_MS)
    expect(take_away).to_have_count(0, timeout=PATIENCE_MS)
    expect(card.get_by_role("status")).to_contain_text("is sent this change")
    expect(card).to_be_focused()
    del theirs["weight"]
    assert service.call("GET", path)["classes"] == [theirs]


def test_a_setting_of_a_terminal_is_changed_at_its_gateway(
    service: ControlService, page: Page
) -> None:
    needed()
    path = f"/v1/gateways/{HUB}/settings"
    sign_in(page, service, at=f"terminals/{DRIVER}")
    card = page.get_by_role("region", name=re.compile("^Set at its gateway"))
    expect(card).to_contain_text("as its own configuration has it", timeout=PATIENCE_MS)
    card.get_by_role("button", name=f"Change a setting of gateway {HUB}").click()
    form = card.get_by_role("form")
    choose(form, "Setting", "Sends at most, Mbit/s")
    form.get_by_role("spinbutton", name="Sends at most, Mbit/s").fill("2.5")
    look = form.get_by_role("button", name="Look at the change")
    look.click()
    seen = card.get_by_role("region", name=f"What would change at gateway {HUB}")
    row = seen.get_by_role("row", name=f"terminal.{DRIVER}.send_rate_bps")
    expect(row).to_contain_text("2500000", timeout=PATIENCE_MS)
    # Somebody else is the first to set anything there: it stays.
    before = {"node": OTHER, "send_rate_bps": 1_000_000}
    service.call("PUT", path, {"terminals": [before]})
    seen.get_by_role("button", name="Set it").click()
    told = card.get_by_role("alert").filter(has_text="somebody else was first")
    expect(told).to_be_visible(timeout=PATIENCE_MS)
    assert service.call("GET", path)["terminals"] == [before]
    # Another terminal's is on its own page.
    expect(card).to_contain_text("waiting", timeout=PATIENCE_MS)
    expect(card).to_contain_text("as its own configuration has it")
    look.click()
    expect(row).to_contain_text("2500000", timeout=PATIENCE_MS)
    expect(seen.get_by_role("row")).to_have_count(2)
    no_violations(page, DESK_AND_PHONE)
    seen.get_by_role("button", name="Set it").click()
    expect(card).to_contain_text("send_rate_bps: 2500000", timeout=PATIENCE_MS)
    expect(card).to_contain_text("waiting")
    after = {"node": DRIVER, "send_rate_bps": 2_500_000}
    assert service.call("GET", path)["terminals"] == [before, after]


def test_all_that_is_shown_of_a_terminal_follows_what_it_reports(
    service: ControlService, page: Page
) -> None:
    node = NODES[2]
    # What is read again only after a long time is not read again at all.
    page.add_init_script(
        "const wait = window.setTimeout;"
        "window.setTimeout = (work, ms) => wait(work, ms >= 10_000 ? 1e9 : ms);"
    )
    sign_in(page, service, at=f"terminals/{node}")
    page.get_by_role("button", name="Change a setting", exact=True).click()
    form = page.get_by_role("form", name=f"Change a setting of {NAMES[node]}")
    form.get_by_role("combobox", name="Class", exact=True).fill("bulk")
    form.get_by_role("spinbutton", name="Weight").fill("8")
    form.get_by_role("button", name="Look at the change").click()
    page.get_by_role("button", name="Begin class bulk").click(timeout=PATIENCE_MS)
    followed = page.get_by_role("region", name="class bulk: weight", exact=True)
    followed.get_by_role("button", name="Terminals of").click(timeout=PATIENCE_MS)
    row = followed.get_by_role("row").last
    card = page.get_by_role("heading", name=re.compile("^Set from afar"))
    expect(row).to_contain_text("sent", timeout=PATIENCE_MS)
    expect(card).to_contain_text("waiting", timeout=PATIENCE_MS)
    for state, badge in (("trial", "trial"), ("confirmed", "applied")):
        says(service, node, state)
        expect(followed).to_contain_text(f"1 {state}", timeout=PATIENCE_MS)
        expect(row).to_contain_text(state, timeout=PATIENCE_MS)
        expect(card).to_contain_text(badge, timeout=PATIENCE_MS)
    # No stage follows, so there is nothing to wait for.
    expect(followed).to_contain_text("done", timeout=PATIENCE_MS)


def says(service: ControlService, node: int, state: str) -> None:
    """Report what has become of a terminal's settings, as its hub does."""
    version = service.call("GET", f"/v1/terminals/{node}/settings")["version"]
    said = {"kind": "settings", "settings": version, "applied": True, "state": state}
    said |= {"uptime_ms": now_ms() % 10**9, "incarnation": 1}
    entry = {"node": node, "age_ms": 1, "report": said}
    post = {"version": 1, "node": HUB, "sent_ms": now_ms(), "reports": [entry]}
    answer = service.call("POST", "/v1/reports", post, service.gateway)
    assert not answer["refused"], answer


def test_a_viewer_is_offered_no_form(service: ControlService, page: Page) -> None:
    sign_in(page, service, service.viewer, at=f"terminals/{DRIVER}")
    expect(page.get_by_role("heading", name="Set from afar")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_role("button", name="Change a setting")).to_have_count(0)
