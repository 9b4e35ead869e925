import { useState } from "preact/hooks";
import { timeOf } from "../api/time";
import type { LinkName, Plan } from "../api/types";
import { useLive } from "../shell/context";
import { bits, bps, seconds, utc } from "../shell/format";
import { Failure, useRead } from "../shell/read";
import { Table } from "../shell/table";
import { contradiction, reasons, segmentAt } from "./reasons";
import { STATES } from "./states";
import { Symbols } from "./symbols";
import { TerminalChoice } from "./terminal-choice";

const AGAIN_MS = 2_000;

/** Why does this terminal have this rate? */
export function Why({ beam, link }: { beam: string; link: LinkName }) {
  const [node, setNode] = useState<number>();
  return (
    <section class="card" aria-labelledby="why">
      <h2 id="why">Why does a terminal have its rate?</h2>
      <TerminalChoice beam={beam} value={node} onChange={setNode} />
      {node !== undefined && <PlanOf beam={beam} link={link} node={node} />}
      <Symbols />
    </section>
  );
}

/** A terminal's line of the plan in force, with all amounts. */
export function PlanOf({ beam, link, node }: { beam: string; link: LinkName; node: number }) {
  const live = useLive();
  const path = () => `v1/beams/${beam}/plans/${link}?terminal=${node}&at=${timeOf(live.now())}`;
  const plan = useRead((signal) => live.client.get<Plan>(path(), signal), `${beam} ${link} ${node}`, AGAIN_MS);
  const line = plan.value?.lines[0];
  const now = live.now();
  const segment = line && segmentAt(line, now);
  const contradicted = segment && contradiction(segment, live.fleet.vehicles.get(node)?.[link], live.asOf());
  return (
    <>
      <Failure of={plan} />
      {contradicted && <p class="flaw">{contradicted}</p>}
      {line && segment && (
        <ul>
          {reasons(line, segment, now).map((reason) => (
            <li key={reason}>{reason}</li>
          ))}
        </ul>
      )}
      {line && (
        <Table
          label={`The terminal's line of the ${link} plan`}
          columns={["From UTC", "For", "State", { number: "Rate" }, { number: "Fair" }, { number: "Borrowed" }, { number: "Lent" }, { number: "Repaid" }, { number: "Repaying" }]}
        >
          {line.segments
            .filter((one) => Date.parse(one.end) > now)
            .slice(0, 20)
            .map((one) => (
              <tr key={one.start} class={one === segment ? "selected" : ""} aria-current={one === segment ? "time" : undefined}>
                <td>{utc(Date.parse(one.start))}</td>
                <td>{seconds(Date.parse(one.end) - Date.parse(one.start))}</td>
                <td>{STATES[one.state].text}</td>
                <td class="number">{bps(one.rate_bps)}</td>
                <td class="number">{bits(one.fair_bits)}</td>
                <td class="number">{bits(one.borrowed_bits)}</td>
                <td class="number">{bits(one.lent_bits)}</td>
                <td class="number">{bits(one.repaid_bits)}</td>
                <td class="number">{bits(one.repaying_bits)}</td>
              </tr>
            ))}
        </Table>
      )}
    </>
  );
}
