import { useState } from "preact/hooks";
import type { Tenant, Token } from "../api/types";
import { useLive } from "../shell/context";
import { Field, Flaw, Form } from "../shell/form";
import { Table } from "../shell/table";
import { RoleField, TenantField } from "./fields";
import { filled, useListed } from "./listed";

const ROLES = ["viewer", "operator", "administrator", "gateway", "terminal", "agent"];
const DAY_MS = 86_400_000;
/** A hundred years. */
const MOST_DAYS = 36_525;

export function Tokens() {
  const live = useLive();
  const { entries, flaw, members, change } = useListed<Token>("v1/tokens", "tokens");
  const tenants = useListed<Tenant>("v1/tenants", "tenants");
  const [made, setMade] = useState<string>();

  const create = (form: HTMLFormElement) => {
    const { node, days, ...rest } = filled(form);
    const expires = days && { expires: new Date(live.now() + Number(days) * DAY_MS).toISOString() };
    const body = { ...rest, ...(node && { node: Number(node) }), ...expires };
    return change(async () => {
      const { token } = await live.client.post<{ token: string }>("v1/tokens", body);
      // Until then the former token stays visible: it cannot be shown again.
      setMade(token);
    });
  };
  const revoke = ({ id, name }: Token) => {
    if (confirm(`Revoke ${name}? What uses it is refused from then on.`)) {
      void change(() => live.client.delete(`v1/tokens/${id}`));
    }
  };
  return (
    <>
      <Form label="Make a token" action="Make" send={create} wrong={members} disabled={!tenants.entries}>
        <Field label="For" name="name" required maxLength={200} autocomplete="off" />
        <RoleField roles={ROLES} />
        <TenantField of={tenants.entries} />
        <Field label="Node" name="node" type="number" min={1} />
        <Field label="Valid for days" name="days" member="expires" type="number" min={1} max={MOST_DAYS} />
      </Form>
      <Flaw>{flaw ?? tenants.flaw}</Flaw>
      {/* There from the beginning: screen readers read out what enters it. */}
      <p role="status">
        {made !== undefined && (
          <>
            It is shown this once: <code>{made}</code>
          </>
        )}
      </p>
      {entries?.length === 0 && <p>There are none.</p>}
      <Table label="All tokens" columns={["For", "Role", "Tenant", "Node", "Since, UTC", "Until, UTC", "Actions"]}>
        {entries?.map((token) => (
          <tr key={token.id}>
            <th scope="row">{token.name}</th>
            <td>{token.role}</td>
            <td>{token.tenant ?? "all vehicles"}</td>
            <td>{token.node}</td>
            <td>{token.created.slice(0, 10)}</td>
            <td>{untilWhen(token, live.now())}</td>
            <td>
              {!token.revoked && (
                <button type="button" aria-label={`Revoke ${token.name}`} onClick={() => revoke(token)}>
                  Revoke
                </button>
              )}
            </td>
          </tr>
        ))}
      </Table>
    </>
  );
}

/** When it ends, or that it has ended. */
function untilWhen({ revoked, expires }: Token, nowMs: number): string {
  if (revoked) return "revoked";
  if (!expires) return "no end";
  return `${Date.parse(expires) <= nowMs ? "expired " : ""}${expires.slice(0, 10)}`;
}
