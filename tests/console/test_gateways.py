"""A gateway's page: what the service knows of it, and what is set of it; reached by its name."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.console.axe import DESK_AND_PHONE, needed, no_violations
from tests.console.fleet import BEAM, DRIVER, HUB, NAMES, NODES
from tests.console.pages import PATIENCE_MS, go, sign_in
from tests.console.service import ControlService

pytestmark = [pytest.mark.console, pytest.mark.usefixtures("fleet")]

OTHER = 12


def test_a_gateway_is_found_in_the_list_and_shows_what_is_known_of_it(
    service: ControlService, page: Page
) -> None:
    needed()
    sign_in(page, service)
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Gateways").click()
    gateways = page.get_by_role("region", name="List of gateways")
    row = gateways.get_by_role("row", name=f"Gateway {HUB}")
    expect(row).to_contain_text("29 days left", timeout=PATIENCE_MS)
    expect(row).to_contain_text(f"of {len(NODES)}")
    no_violations(page, DESK_AND_PHONE)
    (said,) = service.call("GET", "/v1/nodes?role=gateway")["nodes"]
    assert (said["node"], said["role"]) == (HUB, "gateway")
    expect(row).to_contain_text(said["version"])
    row.get_by_role("link", name=f"Gateway {HUB}").click()
    heading = page.get_by_role("heading", name=f"Gateway {HUB}", level=1)
    expect(heading).to_contain_text("up", timeout=PATIENCE_MS)
    itself = page.get_by_role("region", name="Software and certificate")
    expect(itself).to_contain_text(said["version"], timeout=PATIENCE_MS)
    end = said["certificate_end"][:19].replace("T", " ")
    expect(itself).to_contain_text(f"ends {end} UTC")
    expect(itself.get_by_role("button", name="Revoke its certificates")).to_be_visible()
    expect(page.get_by_role("region", name="Heard")).to_contain_text(f"ipn:{HUB}.0")
    links = service.call("GET", "/v1/links")["links"]
    for link, title in (("forward", "Forward: to its"), ("return", "Return: from its")):
        those = [one for one in links if one["link"] == link]
        assert len(those) == len(NODES)
        megabytes = sum(one["backlogged_bytes"] for one in those) / 1e6
        streams = sum(one["streams"] for one in those)
        bundles = sum(one["figures"]["stored_bundles"] for one in those)
        card = page.get_by_role("region", name=title)
        expect(card).to_contain_text(f"{megabytes:g} MB in {streams} streams")
        expect(card).to_contain_text(f"{bundles} bundles")
        expect(card).to_contain_text(re.compile(r"bit/s of .* allowed"))
    beams = page.get_by_role("region", name="Beams of the gateway")
    cells = beams.get_by_role("row", name="East").get_by_role("cell")
    expect(cells.first).to_contain_text(f"of {len(NODES)}")
    for plan in (3, 4):
        expect(cells.nth(plan)).to_have_text(re.compile(r"^\d+$"), timeout=PATIENCE_MS)
    expect(beams.get_by_role("link", name="East")).to_have_attribute("href", f"#/beams/{BEAM}")
    no_violations(page, DESK_AND_PHONE)


def test_a_terminal_leads_to_its_gateway_and_back(service: ControlService, page: Page) -> None:
    sign_in(page, service, at=f"terminals/{DRIVER}")
    page.get_by_role("link", name=f"gateway {HUB}").first.click(timeout=PATIENCE_MS)
    expect(page.get_by_role("heading", name=f"Gateway {HUB}", level=1)).to_be_visible()
    terminals = page.get_by_role("region", name="List of terminals")
    expect(terminals.locator("tbody tr")).to_have_count(len(NODES))
    terminals.get_by_role("link", name=NAMES[DRIVER]).click()
    expect(page.get_by_role("heading", name=NAMES[DRIVER], level=1)).to_be_visible()


def test_a_setting_of_any_of_its_terminals_is_changed_at_the_gateways_page(
    service: ControlService, page: Page
) -> None:
    needed()
    path = f"/v1/gateways/{HUB}/settings"
    before = {"node": OTHER, "send_rate_bps": 1_000_000}
    service.call("PUT", path, {"terminals": [before]})
    sign_in(page, service, at=f"gateways/{HUB}")
    card = page.get_by_role("region", name=re.compile("^Set from afar"))
    set_before = f"terminal {OTHER}: send_rate_bps: 1000000"
    expect(card).to_contain_text(set_before, timeout=PATIENCE_MS)
    card.get_by_role("button", name=f"Change a setting of gateway {HUB}").click()
    form = card.get_by_role("form")
    form.get_by_role("spinbutton", name="Terminal", exact=True).fill(str(DRIVER))
    setting = form.get_by_role("combobox", name="Setting", exact=True)
    setting.select_option(label="Sends at most, Mbit/s")
    form.get_by_role("spinbutton", name="Sends at most, Mbit/s").fill("2.5")
    form.get_by_role("button", name="Look at the change").click()
    seen = card.get_by_role("region", name=f"What would change at gateway {HUB}")
    row = seen.get_by_role("row", name=f"terminal.{DRIVER}.send_rate_bps")
    expect(row).to_contain_text("2500000", timeout=PATIENCE_MS)
    no_violations(page, DESK_AND_PHONE)
    seen.get_by_role("button", name="Set it").click()
    set_after = f"terminal {DRIVER}: send_rate_bps: 2500000"
    expect(card).to_contain_text(set_after, timeout=PATIENCE_MS)
    # Its terminals' are all there.
    expect(card).to_contain_text(set_before)
    after = {"node": DRIVER, "send_rate_bps": 2_500_000}
    assert service.call("GET", path)["terminals"] == [before, after]


def test_a_viewer_changes_nothing_and_an_unknown_gateway_is_not_here(
    service: ControlService, page: Page
) -> None:
    sign_in(page, service, service.viewer, at=f"gateways/{HUB}")
    itself = page.get_by_role("region", name="Software and certificate")
    expect(itself).to_contain_text("Version", timeout=PATIENCE_MS)
    expect(page.get_by_role("heading", name="Set from afar")).to_be_visible()
    expect(page.get_by_role("button", name="Change a setting")).to_have_count(0)
    expect(page.get_by_role("button", name="Revoke its certificates")).to_have_count(0)
    go(page, "gateways/77")
    expect(page.get_by_text("There is no gateway 77 here")).to_be_visible(timeout=PATIENCE_MS)


def test_a_tenant_sees_of_a_gateway_what_concerns_its_vehicles(
    service: ControlService, page: Page
) -> None:
    admin = service.token("administrator")
    service.call("PUT", "/v1/tenants/north", {"name": "north"}, token=admin)
    beam = {"name": "Shared", "forward_capacity_bps": 10**6, "return_capacity_bps": 10**6}
    service.call("PUT", "/v1/beams/shared", beam)
    for node, more in ((901, {"tenant": "north"}), (902, {})):
        coach = {"beam": "shared", "name": f"Coach {node}", "gateway": 9, **more}
        service.call("PUT", f"/v1/terminals/{node}", coach)
    body = {"name": "of the north", "role": "viewer", "tenant": "north"}
    token = service.call("POST", "/v1/tokens", body, token=admin)["token"]
    sign_in(page, service, token, at="gateways/9")
    told = page.get_by_text("1 terminal at it, 0 up, of Shared.")
    expect(told).to_be_visible(timeout=PATIENCE_MS)
    for name in ("Software and certificate", "Set from afar"):
        expect(page.get_by_role("heading", name=name)).to_have_count(0)
