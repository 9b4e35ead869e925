/** Present and past alerts; for operators, also the rules and the targets. */

import { useEffect, useState } from "preact/hooks";
import { useListed } from "../access/listed";
import type { Alert } from "../api/types";
import { useLive, useTick } from "../shell/context";
import { Flaw } from "../shell/form";
import { useMayOperate } from "../shell/may-operate";
import { dated } from "../shell/dates";
import { seconds } from "../shell/format";
import { useKeptFocus } from "../shell/kept-focus";
import { Older, useNewest } from "../shell/newest";
import { Failure } from "../shell/read";
import { hashOf, type Route } from "../shell/route";
import { Table } from "../shell/table";
import { Rules } from "./rules";
import { Targets } from "./targets";

/** The most firing alerts shown, the newest first: after a storm there may be thousands. */
const MOST_FIRING = 300;
/** So many past alerts are shown at first. */
const OVER = 50;
const OVER_MS = 15_000;

export default function AlertsPage(_: { route: Route }) {
  useKeptFocus();
  const mayOperate = useMayOperate();
  return (
    <div class="page">
      <h1>Alerts</h1>
      <Firing mayOperate={mayOperate} />
      {mayOperate && <Rules />}
      {mayOperate && <Targets />}
    </div>
  );
}

function Firing({ mayOperate }: { mayOperate: boolean }) {
  const live = useLive();
  useTick(1000);
  const { entries: firing, flaw, change, reread } = useListed<Alert>("v1/alerts?firing=true", "alerts", { most: MOST_FIRING });
  useEffect(() => live.listen(({ kind }) => void (kind === "alerts" && reread())), [live]);
  const resolved = useNewest<Alert>("v1/alerts?firing=false", "alerts", OVER, OVER_MS);
  const over = resolved.entries;
  const [text, setText] = useState("");
  const wanted = text.trim().toLowerCase();
  const matching = (all: Alert[]) =>
    all.filter((one) => `${live.fleet.nameOf(one.terminal)} ${one.text} ${one.rule}`.toLowerCase().includes(wanted));
  const acknowledge = (one: Alert) => void change(() => live.client.post(`v1/alerts/${one.id}/acknowledgement`, undefined));
  return (
    <>
      <Flaw>{flaw}</Flaw>
      {firing?.length === 0 && <p>Nothing is wrong by the rules.</p>}
      {(firing?.length ?? 0) + (over?.length ?? 0) > 0 && (
        <label>
          With <input type="search" value={text} onInput={(e) => setText(e.currentTarget.value)} />
        </label>
      )}
      {firing && firing.length >= MOST_FIRING && <p>There may be more: these are the newest {MOST_FIRING}.</p>}
      {firing && firing.length > 0 && (
        <AlertTable label="What is wrong" alerts={matching(firing)} onAcknowledge={mayOperate ? acknowledge : undefined} nowMs={live.now()} />
      )}
      <Failure of={resolved} />
      {over && over.length > 0 && (
        <>
          <h2>Resolved</h2>
          <AlertTable label="What was wrong" alerts={matching(over)} onAcknowledge={undefined} nowMs={live.now()} />
          <Older of={resolved} first={OVER} what="alerts" />
        </>
      )}
    </>
  );
}

interface Props {
  label: string;
  alerts: Alert[];
  onAcknowledge: ((one: Alert) => void) | undefined;
  nowMs: number;
}

function AlertTable({ label, alerts, onAcknowledge, nowMs }: Props) {
  const live = useLive();
  return (
    <Table label={label} columns={["Terminal", "What", "Rule", "Since, UTC", "For", "Known to", "Where"]}>
      {alerts.map((one) => (
        <tr key={one.id}>
          <th scope="row">
            <a href={hashOf("terminals", one.terminal)}>{live.fleet.nameOf(one.terminal)}</a>
          </th>
          <td>{one.text}</td>
          <td>{one.rule}</td>
          <td>{dated(Date.parse(one.since))}</td>
          <td>{seconds((one.resolved ? Date.parse(one.resolved) : nowMs) - Date.parse(one.since))}</td>
          <td>
            {one.acknowledged && (one.acknowledged_by ?? "an operator")}
            {!one.acknowledged && onAcknowledge && (
              <button type="button" aria-label={`Acknowledge: ${one.text}`} onClick={() => onAcknowledge(one)}>
                Acknowledge
              </button>
            )}
          </td>
          <td>
            <a href={hashOf("map", one.terminal)} aria-label={`${live.fleet.nameOf(one.terminal)} on the map`}>
              map
            </a>
          </td>
        </tr>
      ))}
    </Table>
  );
}
