/** Revokes a node's certificates, for lost equipment: nobody can pose as the node with it any more. */

import { useState } from "preact/hooks";
import { textOf } from "../access/listed";
import type { Client } from "../api/client";
import { useLive } from "../shell/context";
import { Field, Flaw, Form } from "../shell/form";
import { useMayOperate } from "../shell/may-operate";

export const MOST_NODE = 4_294_967_295;

/** Asks, and revokes all certificates of a node; returns what was done, or nothing if that was not confirmed. */
export async function revoked(client: Client, node: number, ask: (what: string) => boolean): Promise<string | undefined> {
  const what = `Revoke all certificates of node ${node}? Its sessions end, and it is a node again only once it is enrolled anew.`;
  if (!ask(what)) return undefined;
  const { revoked: serials } = await client.delete<{ revoked: string[] }>(`v1/nodes/${node}/certificates`);
  return `Revoked: ${serials.join(", ")}. Hubs end the sessions of node ${node} once they have the list. Tokens that wait for it stay good until they are withdrawn.`;
}

function useRevocation() {
  const { client } = useLive();
  const [said, setSaid] = useState<string>();
  const [flaw, setFlaw] = useState<string>();
  const revoke = async (node: number) => {
    setSaid(undefined);
    setFlaw(undefined);
    try {
      const done = await revoked(client, node, (what) => confirm(what));
      setSaid(done);
      return done !== undefined;
    } catch (error) {
      setFlaw(textOf(error));
      return false;
    }
  };
  const outcome = (
    <>
      <p role="status">{said}</p>
      <Flaw>{flaw}</Flaw>
    </>
  );
  return { revoke, outcome };
}

/** For the page of a node. */
export function Revocation({ node }: { node: number }) {
  const { revoke, outcome } = useRevocation();
  if (!useMayOperate()) return null;
  return (
    <>
      <button type="button" onClick={() => void revoke(node)}>
        Revoke its certificates
      </button>
      {outcome}
    </>
  );
}

/** For any node, by its number: equipment may be lost before it has reported, and has no page then. */
export function RevocationForm() {
  const { revoke, outcome } = useRevocation();
  const send = (form: HTMLFormElement) => revoke(Number(new FormData(form).get("revoked")));
  return (
    <section aria-labelledby="revocation">
      <h2 id="revocation">Lost equipment</h2>
      <Form label="Revoke the certificates of a node" action="Revoke its certificates" send={send}>
        <Field label="Lost node" name="revoked" type="number" required min={1} max={MOST_NODE} autocomplete="off" />
      </Form>
      {outcome}
    </section>
  );
}
