import type { NodeReport } from "../api/types";
import { useLive } from "../shell/context";
import { Failure, useRead } from "../shell/read";
import { instant } from "../shell/dates";
import { lifetime } from "./lifetime";
import { Revocation } from "./revocation";

const READ_MS = 15_000;

/** What a terminal reports of itself. */
export function Itself({ node }: { node: number }) {
  const { client } = useLive();
  const path = `v1/terminals/${node}/node`;
  const found = useRead((signal) => client.get<NodeReport>(path, signal), path, READ_MS);
  return <ItselfCard node={node} said={found.value} failure={found.failure} />;
}

interface Props {
  node: number;
  /** Absent until it has been read. */
  said: NodeReport | undefined;
  failure: string | undefined;
}

/** What a node reports of itself: its software and its certificate's end; and the certificate's revocation. */
export function ItselfCard({ node, said, failure }: Props) {
  const live = useLive();
  const hasNone = said?.reported && !said.certificate_end;
  return (
    <section class="card" aria-labelledby="itself">
      <h2 id="itself">Software and certificate</h2>
      <Failure of={{ failure }} />
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
      {/* Equipment may be lost before it has said anything of itself. */}
      {!hasNone && <Revocation node={node} />}
    </section>
  );
}
