import type { NodeReport } from "../api/types";
import { useLive } from "../shell/context";
import { Failure, useRead } from "../shell/read";
import { instant } from "../shell/dates";
import { lifetime } from "./lifetime";

const READ_MS = 15_000;

/** What a terminal has said of itself: its software, and how long its certificate is good for. */
export function Itself({ node }: { node: number }) {
  const live = useLive();
  const path = `v1/terminals/${node}/node`;
  const found = useRead((signal) => live.client.get<NodeReport>(path, signal), path, READ_MS);
  const said = found.value;
  return (
    <section class="card" aria-labelledby="itself">
      <h2 id="itself">Software and certificate</h2>
      <Failure of={found} />
      {said && !said.reported && <p>It has said nothing of itself yet.</p>}
      {said?.reported && (
        <dl class="facts">
          <dt>Version</dt>
          <dd>{said.version}</dd>
          <dt>Certificate</dt>
          <dd>{said.certificate_end ? lifetime(Date.parse(said.certificate_end), live.now()) : "none: its links are not secured"}</dd>
          <dt>As of</dt>
          <dd>{instant(Date.parse(said.reported))}</dd>
        </dl>
      )}
    </section>
  );
}
