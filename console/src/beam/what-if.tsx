import { useRef, useState } from "preact/hooks";
import { textOf } from "../access/listed";
import type { LinkName, WhatIf } from "../api/types";
import { useLive } from "../shell/context";
import { bits } from "../shell/format";
import { Table } from "../shell/table";
import { BlockageBar, type Span } from "./blockage-bar";
import { CapacityView } from "./capacity-view";
import { type Composed, compose } from "./composed";
import { TerminalChoice } from "./terminal-choice";

/** How far ahead a blockage may be dragged, s. */
const LINE_S = 120;

interface Answer {
  totals: WhatIf["totals"];
  composed: Composed;
}

/** The plan that would be made if a terminal were blocked, or the beam's capacity differed. */
export function WhatIfView({ beam, link }: { beam: string; link: LinkName }) {
  const live = useLive();
  const [node, setNode] = useState<number>();
  const [inS, setInS] = useState("30");
  const [forS, setForS] = useState("30");
  const [mbps, setMbps] = useState("");
  const [answer, setAnswer] = useState<Answer>();
  const [failure, setFailure] = useState<string>();
  const [asking, setAsking] = useState(false);
  /** The next question after the answer: the blockage may have been moved meanwhile. */
  const next = useRef<(() => Promise<void>) | undefined>(undefined);
  const isAsking = useRef(false);

  const span: Span = { startS: Number(inS) || 0, endS: (Number(inS) || 0) + (Number(forS) || 1) };
  const setSpan = ({ startS, endS }: Span) => {
    setInS(String(startS));
    setForS(String(endS - startS));
  };

  const ask = async (of: Span) => {
    next.current = () => answered(of);
    if (isAsking.current) return;
    isAsking.current = true;
    setAsking(true);
    try {
      for (let one = take(); one; one = take()) await one();
    } finally {
      isAsking.current = false;
      setAsking(false);
    }
  };
  const take = () => {
    const one = next.current;
    next.current = undefined;
    return one;
  };
  const answered = async ({ startS, endS }: Span) => {
    const nowMs = live.now();
    const moment = (ms: number) => new Date(ms).toISOString();
    const [entryMs, exitMs] = [nowMs + 1000 * startS, nowMs + 1000 * endS];
    const blockages = node === undefined ? undefined : [{ terminal: node, entry: moment(entryMs), exit: moment(exitMs) }];
    const capacity = mbps === "" ? undefined : [{ from: moment(nowMs), rate_bps: Math.round(1e6 * Number(mbps)) }];
    try {
      const made = await live.client.post<WhatIf>(`v1/beams/${beam}/what-if`, { link, blockages, capacity });
      setAnswer({ totals: made.totals, composed: compose([made], nowMs, Date.parse(made.end)) });
      setFailure(undefined);
    } catch (error) {
      setFailure(textOf(error));
    }
  };

  return (
    <section class="card" aria-labelledby="what-if">
      <h2 id="what-if">What if?</h2>
      <p class="note">Nothing is changed by asking. A blockage here takes the place of all that are expected.</p>
      <form
        class="what-if"
        onSubmit={(event) => {
          event.preventDefault();
          void ask(span);
        }}
      >
        <TerminalChoice beam={beam} value={node} onChange={setNode} />
        <BlockageBar
          span={span}
          overS={Math.max(LINE_S, span.endS)}
          onChange={setSpan}
          onDone={(now) => void (node !== undefined && ask(now))}
        />
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
        <button type="submit" aria-disabled={asking}>
          {asking ? "Planning…" : "Plan it"}
        </button>
      </form>
      {failure && <p class="flaw" role="alert">{failure}</p>}
      {answer && <Result {...answer} />}
    </section>
  );
}

/** The most terminals listed, those furthest from their fair share first. */
const MOST_ROWS = 50;

function Result({ totals, composed }: Answer) {
  const live = useLive();
  const off = (one: Answer["totals"][number]) => Math.abs(one.bits - one.fair_bits);
  const listed = [...totals].sort((a, b) => off(b) - off(a)).slice(0, MOST_ROWS);
  return (
    <>
      <CapacityView composed={composed} pastMs={5_000} aheadMs={150_000} label="The plan that would be made" />
      {totals.length > MOST_ROWS && (
        <p class="count">
          The {MOST_ROWS} of {totals.length} whose part is furthest from their fair share.
        </p>
      )}
      <Table label="What each terminal would have" columns={["Terminal", { number: "Would have" }, { number: "Fair share" }]}>
        {listed.map((one) => (
          <tr key={one.terminal}>
            <th scope="row">{live.fleet.nameOf(one.terminal)}</th>
            <td class="number">{bits(one.bits)}</td>
            <td class="number">{bits(one.fair_bits)}</td>
          </tr>
        ))}
      </Table>
    </>
  );
}
