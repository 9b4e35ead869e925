/** One terminal: both directions of its link, its blockages, and the plans in force. */

import { useState } from "preact/hooks";
import { textOf } from "../access/listed";
import type { Blockage, LinkFigures, LinkName, OtherPath } from "../api/types";
import "../beam/beam.css";
import { PlanOf } from "../beam/why";
import { countdown, nextBlockage } from "../fleet/blockage";
import { healthOf } from "../fleet/fleet";
import { HealthBadge } from "../fleet/vehicle-table";
import { GatewayLink } from "../gateway/gateway-link";
import { gatewayOf } from "../gateway/gateways";
import { useLive, useTick } from "../shell/context";
import { counted } from "../shell/counted";
import { Field, Flaw, Form } from "../shell/form";
import { useMayOperate, useMayOperateOwn } from "../shell/may-operate";
import { utcOn } from "../shell/dates";
import { bps, bytes, seconds, speed } from "../shell/format";
import { Older, useNewest } from "../shell/newest";
import { NotHere } from "../shell/not-here";
import { Failure } from "../shell/read";
import { hashOf, type Route } from "../shell/route";
import { Table, type Column } from "../shell/table";
import { CarriedHistory } from "./carried-history";
import { Draining } from "./draining";
import { healthOfLink } from "./heard";
import { Itself } from "./itself";
import { LastWords } from "./last-words";
import { LineChart } from "./line-chart";
import { OpenStreams } from "./open-streams";
import { Removal } from "./removal";
import { backlogColumns, outages, rateColumns } from "./series";
import { SetAtGateway, SetFromAfar } from "./set-from-afar";
import { Tags } from "./tags";

const BLOCKAGES_MS = 10_000;
/** So many are shown at first. */
const BLOCKAGES = 30;
const LINKS: LinkName[] = ["forward", "return"];
const BLOCKAGE_COLUMNS: Column[] = [
  ...["Entry, UTC", "Lasts", "State", "By", "Where"],
  ...["Sure", "Entry off by", "Exit off by"].map((number) => ({ number })),
];

export default function TerminalView({ route }: { route: Route }) {
  const live = useLive();
  useTick(1000);
  const node = Number(route.of);
  const terminal = live.fleet.terminals.get(node);
  if (!terminal) return <NotHere what={`terminal ${route.of}`} />;
  const vehicle = live.fleet.vehicle(node);
  const next = nextBlockage(vehicle, live.now());
  const { position } = vehicle;
  const gateway = gatewayOf(terminal);
  return (
    <div class="page">
      <h1>
        {terminal.name} <HealthBadge health={healthOf(vehicle, live.asOf())} />
      </h1>
      <p>
        Terminal {node} of beam <a href={hashOf("beams", terminal.beam)}>{live.fleet.beams.get(terminal.beam)?.name ?? terminal.beam}</a>,
        {" "}{gateway === undefined ? "at no gateway yet" : <>at <GatewayLink node={gateway} /></>}.{" "}
        {position ? (
          <>
            {speed(position.speed_mps)}, <a href={hashOf("map", node)}>on the map</a> as of {seconds(live.now() - position.timeMs)} ago.
          </>
        ) : (
          "It has reported no position."
        )}{" "}
        {next ? `A blockage is expected ${countdown(next)}, ${Math.round(100 * (next.blockage.confidence ?? 1))} % sure.` : "No blockage is expected."}
      </p>
      <div class="columns">
        <LastWords vehicle={vehicle} nowMs={live.asOf()} />
        <Itself key={`itself ${node}`} node={node} />
        <SetFromAfar key={`set ${node}`} terminal={terminal} />
        {gateway !== undefined && <SetAtGateway key={`set at gateway ${gateway}`} gateway={gateway} terminal={terminal} sends={vehicle.forward} />}
      </div>
      <div class="columns">
        {LINKS.map((link) => (
          <LinkCard key={link} node={node} link={link} />
        ))}
      </div>
      <OpenStreams key={`streams ${node}`} node={node} />
      <div class="columns">
        <Tags key={`tags ${node}`} terminal={terminal} />
        <Draining key={`draining ${node}`} node={node} />
      </div>
      <Blockages key={`blockages ${node}`} node={node} />
      {LINKS.map((link) => (
        <section key={link} class="card" aria-label={`Plan in force of the ${link} link`}>
          <h2>Plan in force, {link} link</h2>
          <PlanOf beam={terminal.beam} link={link} node={node} />
        </section>
      ))}
      <Removal key={`removal ${node}`} terminal={terminal} />
    </div>
  );
}

function LinkCard({ node, link }: { node: number; link: LinkName }) {
  const live = useLive();
  const state = live.fleet.vehicles.get(node)?.[link];
  const samples = () => live.fleet.rates.of(node, link);
  const title = link === "forward" ? "Forward: to the terminal" : "Return: from the terminal";
  if (!state) {
    return (
      <section class="card" aria-label={title}>
        <h2>{title}</h2>
        <p>Nothing has been reported of it.</p>
      </section>
    );
  }
  const health = healthOfLink(state, live.asOf());
  const measured = typeof state.capacity_bps === "number" ? `${bps(state.capacity_bps)}, by ${state.capacity_reason}` : "no less than it is allowed";
  return (
    <section class="card" aria-label={title}>
      <h2>
        {title} <HealthBadge health={health} />
      </h2>
      <dl class="facts">
        <dt>Carries</dt>
        <dd>
          {bps(health === "silent" ? undefined : live.fleet.rates.newest(node, link))} of {bps(state.rate_bps)} allowed
        </dd>
        <dt>Waiting</dt>
        <dd>
          {bytes(state.backlogged_bytes)} in {counted(state.streams, "stream")}
        </dd>
        <dt>Measured to carry</dt>
        <dd>{measured}</dd>
        {state.figures && <FigureFacts figures={state.figures} />}
        <dt>Efficiency</dt>
        <dd>
          {state.efficiency} {state.efficiency_told ? "(told by its modem)" : ""}
        </dd>
        <dt>Plan it follows</dt>
        <dd>{state.plan ?? "none"}</dd>
        <dt>Path</dt>
        <dd>{state.path}</dd>
        <dt>Last report</dt>
        <dd>
          {seconds(live.now() - Date.parse(state.time))} ago, by node {state.node}, up for {seconds(state.uptime_ms)}
        </dd>
        <dt>Its clock</dt>
        <dd>
          {state.synchronised ? "synchronised" : "not synchronised"}
          {state.clock_offset_ms !== undefined && state.clock_offset_ms !== null && `, ${state.clock_offset_ms} ms ahead of the service's`}
        </dd>
      </dl>
      {state.figures && <Classes link={link} classes={state.figures.classes} />}
      {state.figures?.other_paths && <OtherPaths link={link} paths={state.figures.other_paths} unlisted={state.figures.unlisted_paths ?? 0} />}
      <LineChart
        label={`Rates, ${link}`}
        names={["carried", "allowed", "measured to carry"]}
        colours={["accent", "quiet", "ahead"]}
        read={() => ({ columns: rateColumns(samples()), outages: outages(samples()) })}
        format={bps}
      />
      <LineChart
        label={`Bytes waiting, ${link}`}
        names={["waiting"]}
        colours={["down"]}
        read={() => ({ columns: backlogColumns(samples()), outages: outages(samples()) })}
        format={bytes}
      />
      <p class="note">Drawn since this console was opened; shaded: the link was not up.</p>
      <CarriedHistory node={node} link={link} />
    </section>
  );
}

function FigureFacts({ figures }: { figures: LinkFigures }) {
  return (
    <>
      <dt>Round trip, queue</dt>
      <dd>
        {typeof figures.rtt_ms === "number" ? `${figures.rtt_ms} ms, of which ` : "unknown; "}
        {figures.queue_ms} ms in the link's queue
      </dd>
      <dt>Loss</dt>
      <dd>{Number((100 * figures.loss).toPrecision(2))} % by the link itself</dd>
      <dt>In custody</dt>
      <dd>
        {counted(figures.stored_bundles, "bundle")}, {bytes(figures.stored_bytes)}
      </dd>
    </>
  );
}

function Classes({ link, classes }: { link: LinkName; classes: LinkFigures["classes"] }) {
  if (classes.length === 0) return null;
  const columns: Column[] = ["Class", { number: "Streams" }, { number: "To be sent" }];
  return (
    <Table label={`Classes of the ${link} link`} columns={columns}>
      {classes.map((one) => (
        <tr key={one.name}>
          <th scope="row">{one.name}</th>
          <td class="number">{one.streams ?? "many"}</td>
          <td class="number">{bytes(one.backlogged_bytes)}</td>
        </tr>
      ))}
    </Table>
  );
}

function OtherPaths({ link, paths, unlisted }: { link: LinkName; paths: OtherPath[]; unlisted: number }) {
  const known = (value: number | null | undefined, show: (value: number) => string) => (typeof value === "number" ? show(value) : "");
  const columns: Column[] = ["Path", "State", { number: "Allowed" }, { number: "Measured" }, { number: "Round trip" }, { number: "Loss" }, { number: "Sent" }];
  return (
    <>
      <Table label={`Other paths of the ${link} link`} columns={columns}>
        {paths.map((one) => (
          <tr key={one.path}>
            <th scope="row">{one.path}</th>
            <td>{one.state}</td>
            <td class="number">{known(one.rate_bps, bps)}</td>
            <td class="number">{known(one.capacity_bps, bps)}</td>
            <td class="number">{known(one.rtt_ms, (ms) => `${ms} ms`)}</td>
            <td class="number">{known(one.loss, (loss) => `${Number((100 * loss).toPrecision(2))} %`)}</td>
            <td class="number">{bytes(one.sent_bytes)}</td>
          </tr>
        ))}
      </Table>
      {unlisted > 0 && <p class="note">And {counted(unlisted, "path")} more.</p>}
    </>
  );
}

function Blockages({ node }: { node: number }) {
  const live = useLive();
  const newest = useNewest<Blockage>(`v1/blockages?terminal=${node}&order=newest`, "blockages", BLOCKAGES, BLOCKAGES_MS);
  const mayOperate = useMayOperate();
  const mayAnnounce = useMayOperateOwn();
  const [said, setSaid] = useState<string>();
  const [flaw, setFlaw] = useState<string>();
  const attempt = async (work: Promise<unknown>, done: string) => {
    setSaid(undefined);
    setFlaw(undefined);
    try {
      await work;
      setSaid(done);
      return true;
    } catch (error) {
      setFlaw(textOf(error));
      return false;
    }
  };
  // A withdrawn blockage stays listed until the next read; it must not be withdrawn twice.
  const [withdrawn, setWithdrawn] = useState<ReadonlySet<number>>(new Set());
  const withdraw = async (blockage: number) => {
    if (withdrawn.has(blockage)) return;
    const work = live.client.post("v1/interventions", { kind: "withdrawal", blockage });
    if (await attempt(work, "Withdrawn: it is not predicted again for this passage. The beam's page releases that.")) {
      setWithdrawn((before) => new Set([...before, blockage]));
    }
  };
  return (
    <section class="card" aria-labelledby="blockages">
      <h2 id="blockages">Blockages</h2>
      <Failure of={newest} />
      {mayAnnounce && <Announce key={node} node={node} attempt={attempt} />}
      <p role="status">{said}</p>
      <Flaw>{flaw}</Flaw>
      {newest.entries?.length === 0 && <p>None is expected, and none was observed.</p>}
      <Table label="Blockages, the newest first" columns={mayOperate ? [...BLOCKAGE_COLUMNS, "Action"] : BLOCKAGE_COLUMNS}>
        {newest.entries?.map((one, index) => (
          <tr key={index}>
            <td>{utcOn(Date.parse(one.entry), live.now())}</td>
            <td>{one.exit ? seconds(Date.parse(one.exit) - Date.parse(one.entry)) : "still"}</td>
            <td>{one.state}</td>
            <td>
              {one.source} {one.link}
            </td>
            <td>{one.obstruction ?? ""}</td>
            <td class="number">{one.confidence === null || one.confidence === undefined ? "" : `${Math.round(100 * one.confidence)} %`}</td>
            <td class="number">{error(one.entry_error_ms)}</td>
            <td class="number">{error(one.exit_error_ms)}</td>
            {mayOperate && (
              <td>
                {one.state === "predicted" && one.id && (
                  <button
                    type="button"
                    // Not disabled: a keyboard user would lose the focus.
                    aria-disabled={withdrawn.has(Number(one.id))}
                    aria-label={`Withdraw the blockage of ${utcOn(Date.parse(one.entry), live.now())} UTC`}
                    onClick={() => void withdraw(Number(one.id))}
                  >
                    Withdraw
                  </button>
                )}
              </td>
            )}
          </tr>
        ))}
      </Table>
      <Older of={newest} first={BLOCKAGES} what="blockages" />
    </section>
  );
}

/**
 * Has a terminal planned as blocked; its expected blockage can be withdrawn below. The fields have
 * defaults and not values: the page is rendered each second, which must not undo typing.
 */
function Announce({ node, attempt }: { node: number; attempt: (work: Promise<unknown>, done: string) => Promise<boolean> }) {
  const live = useLive();
  const submit = async (form: HTMLFormElement) => {
    const given = new FormData(form);
    const entry = new Date(live.now() + 1000 * Number(given.get("in"))).toISOString();
    const body = { entry, duration_ms: Math.round(1000 * Number(given.get("for"))), confidence: 1 };
    const work = live.client.post(`v1/terminals/${node}/announcements`, body);
    await attempt(work, "Announced: it is planned for, as if the terminal had said so.");
    return false;
  };
  return (
    <Form label="Announce a blockage" action="Announce" send={submit}>
      <Field label="Blocked in, s" name="in" type="number" min="0" max="3600" step="any" defaultValue="10" required />
      <Field label="for, s" name="for" type="number" min="1" max="3600" step="any" defaultValue="60" required />
    </Form>
  );
}

function error(ms: number | null | undefined): string {
  return ms === null || ms === undefined ? "" : `${ms > 0 ? "+" : ""}${seconds(ms)}`;
}
