import { useState } from "preact/hooks";
import { textOf } from "../access/listed";
import type { NodeReport } from "../api/types";
import { useLive } from "../shell/context";
import { Flaw } from "../shell/form";
import { useMayOperate } from "../shell/may-operate";
import { Failure, useRead } from "../shell/read";
import { instant } from "../shell/dates";
import { lifetime } from "./lifetime";

const READ_MS = 15_000;

/** What a terminal reports of itself: its software and its certificate's end; and the certificate's revocation. */
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
      {said?.certificate_end && <Revocation node={node} />}
    </section>
  );
}

/** Revokes a node's certificates, for lost equipment: nobody can pose as the node with it any more. */
function Revocation({ node }: { node: number }) {
  const { client } = useLive();
  const [said, setSaid] = useState<string>();
  const [flaw, setFlaw] = useState<string>();
  if (!useMayOperate()) return null;
  const revoke = async () => {
    if (!confirm(`Revoke all certificates of node ${node}? Its sessions end, and it is a node again only once it is enrolled anew.`)) return;
    setSaid(undefined);
    setFlaw(undefined);
    try {
      const { revoked } = await client.delete<{ revoked: string[] }>(`v1/nodes/${node}/certificates`);
      setSaid(`Revoked: ${revoked.join(", ")}. Hubs end its sessions once they have the list.`);
    } catch (error) {
      setFlaw(textOf(error));
    }
  };
  return (
    <>
      <button type="button" onClick={() => void revoke()}>
        Revoke its certificates
      </button>
      <p role="status">{said}</p>
      <Flaw>{flaw}</Flaw>
    </>
  );
}
