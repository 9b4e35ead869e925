import { useState } from "preact/hooks";
import { textOf } from "../access/listed";
import type { StreamList } from "../api/types";
import { GatewayLink } from "../gateway/gateway-link";
import { useLive } from "../shell/context";
import { utcOn } from "../shell/dates";
import { Flaw } from "../shell/form";
import { bytes, seconds } from "../shell/format";
import { useMayOperateOwn } from "../shell/may-operate";
import { Table, type Column } from "../shell/table";
import { listed, standing } from "./stream-text";

const COLUMNS: Column[] = ["To", "Class", "Paths", "State", ...["To the terminal", "From it", "Open for"].map((number) => ({ number }))];

/** The streams of a terminal. Its gateway is asked once each time an operator requests them. */
export function OpenStreams({ node }: { node: number }) {
  const live = useLive();
  const [found, setFound] = useState<StreamList>();
  const [flaw, setFlaw] = useState<string>();
  const [asking, setAsking] = useState(false);
  if (!useMayOperateOwn()) return null;
  const ask = async () => {
    if (asking) return;
    setAsking(true);
    setFlaw(undefined);
    try {
      setFound(await live.client.get<StreamList>(`v1/terminals/${node}/streams`));
    } catch (error) {
      setFlaw(textOf(error));
    }
    setAsking(false);
  };
  return (
    <section class="card" aria-labelledby="streams">
      <h2 id="streams">Streams</h2>
      <p>
        <button type="button" aria-disabled={asking} onClick={() => void ask()}>
          {found ? "Ask its gateway again" : "Ask its gateway which are open"}
        </button>
      </p>
      <p role="status">
        {asking && "Asking…"}
        {!asking && found && (
          <>
            {listed(found)} As of {utcOn(Date.parse(found.time), live.now())} UTC, by <GatewayLink node={found.gateway} />.
          </>
        )}
      </p>
      <Flaw>{flaw}</Flaw>
      {found && found.streams.length > 0 && <Streams found={found} />}
    </section>
  );
}

function Streams({ found }: { found: StreamList }) {
  return (
    <Table label="Streams, the largest first" columns={COLUMNS}>
      {found.streams.map((one) => (
        <tr key={`${one.epoch}.${one.id}`}>
          <th scope="row">{one.target ?? "unknown"}</th>
          <td>{one.class}</td>
          <td>{one.paths.length > 0 ? one.paths.join(", ") : "none"}</td>
          <td>{standing(one)}</td>
          <td class="number">{bytes(one.forward_bytes)}</td>
          <td class="number">{bytes(one.return_bytes)}</td>
          <td class="number">{seconds(one.age_ms)}</td>
        </tr>
      ))}
    </Table>
  );
}
