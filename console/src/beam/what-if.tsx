import { useState } from "preact/hooks";
import { ApiError } from "../api/client";
import type { LinkName, WhatIf } from "../api/types";
import { useLive } from "../shell/context";
import { bits } from "../shell/format";
import { CapacityView } from "./capacity-view";
import { type Composed, compose } from "./composed";
import { TerminalChoice } from "./terminal-choice";

interface Answer {
  totals: WhatIf["totals"];
  composed: Composed;
}

/** What would be planned if a terminal were blocked, or the beam carried something else. */
export function WhatIfView({ beam, link }: { beam: string; link: LinkName }) {
  const live = useLive();
  const [node, setNode] = useState<number>();
  const [inS, setInS] = useState("30");
  const [forS, setForS] = useState("30");
  const [mbps, setMbps] = useState("");
  const [answer, setAnswer] = useState<Answer>();
  const [failure, setFailure] = useState<string>();
  const [asking, setAsking] = useState(false);

  const ask = async (event: Event) => {
    event.preventDefault();
    const nowMs = live.now();
    const moment = (ms: number) => new Date(ms).toISOString();
    const entryMs = nowMs + 1000 * Number(inS);
    const exitMs = entryMs + 1000 * Number(forS);
    const blockages = node === undefined ? undefined : [{ terminal: node, entry: moment(entryMs), exit: moment(exitMs) }];
    const capacity = mbps === "" ? undefined : [{ from: moment(nowMs), rate_bps: Math.round(1e6 * Number(mbps)) }];
    setAsking(true);
    try {
      const made = await live.client.post<WhatIf>(`v1/beams/${beam}/what-if`, { link, blockages, capacity });
      setAnswer({ totals: made.totals, composed: compose([made], nowMs, Date.parse(made.end)) });
      setFailure(undefined);
    } catch (error) {
      setFailure(error instanceof ApiError ? error.message : String(error));
    } finally {
      setAsking(false);
    }
  };

  return (
    <section class="card" aria-labelledby="what-if">
      <h2 id="what-if">What if?</h2>
      <p class="note">Nothing is changed by asking. A blockage here takes the place of all that are expected.</p>
      <form class="what-if" onSubmit={(event) => void ask(event)}>
        <TerminalChoice beam={beam} value={node} onChange={setNode} />
        <label>
          blocked in, s <input type="number" min="0" max="3600" step="any" value={inS} onInput={(e) => setInS(e.currentTarget.value)} />
        </label>
        <label>
          for, s <input type="number" min="0.1" max="3600" step="any" value={forS} onInput={(e) => setForS(e.currentTarget.value)} />
        </label>
        <label>
          capacity, Mbit/s (empty: as it is){" "}
          <input type="number" min="0" max="1000000" step="any" value={mbps} onInput={(e) => setMbps(e.currentTarget.value)} />
        </label>
        <button type="submit" disabled={asking}>
          {asking ? "Planning…" : "Plan it"}
        </button>
      </form>
      {failure && <p class="flaw" role="alert">{failure}</p>}
      {answer && <Result {...answer} />}
    </section>
  );
}

function Result({ totals, composed }: Answer) {
  const live = useLive();
  return (
    <>
      <CapacityView composed={composed} pastMs={5_000} aheadMs={150_000} label="The plan that would be made" />
      <div class="scroll" tabIndex={0} role="region" aria-label="What each terminal would have">
        <table>
          <thead>
            <tr>
              <th scope="col">Terminal</th>
              <th scope="col" class="number">Would have</th>
              <th scope="col" class="number">Fair share</th>
            </tr>
          </thead>
          <tbody>
            {totals.slice(0, 50).map((one) => (
              <tr key={one.terminal}>
                <th scope="row">{live.fleet.nameOf(one.terminal)}</th>
                <td class="number">{bits(one.bits)}</td>
                <td class="number">{bits(one.fair_bits)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
