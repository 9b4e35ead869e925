import { useState } from "preact/hooks";
import type { Token } from "../api/types";
import { useLive } from "../shell/context";
import { RoleField, TenantField } from "./fields";
import { filled, useListed } from "./listed";

const ROLES = ["viewer", "operator", "administrator", "gateway", "terminal", "agent"];
const DAY_MS = 86_400_000;

export function Tokens() {
  const live = useLive();
  const { entries, flaw, change } = useListed<Token>("v1/tokens", "tokens");
  const [made, setMade] = useState<string>();

  const create = async (event: Event) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const { node, days, ...rest } = filled(form);
    const expires = days && { expires: new Date(live.now() + Number(days) * DAY_MS).toISOString() };
    const body = { ...rest, ...(node && { node: Number(node) }), ...expires };
    setMade(undefined);
    const ok = await change(async () => {
      const { token } = await live.client.post<{ token: string }>("v1/tokens", body);
      setMade(token);
    });
    if (ok) form.reset();
  };
  const revoke = ({ id, name }: Token) => {
    if (confirm(`Revoke ${name}? What uses it is refused from then on.`)) {
      void change(() => live.client.delete(`v1/tokens/${id}`));
    }
  };
  return (
    <>
      <form class="tools" aria-label="Make a token" onSubmit={(event) => void create(event)}>
        <label>
          For <input name="name" required maxLength={200} autocomplete="off" />
        </label>
        <RoleField roles={ROLES} />
        <TenantField />
        <label>
          Node <input name="node" type="number" min={1} />
        </label>
        <label>
          Valid for days <input name="days" type="number" min={1} />
        </label>
        <button type="submit">Make</button>
      </form>
      <p class="flaw" role="alert">
        {flaw}
      </p>
      {made !== undefined && (
        <p role="status">
          It is shown this once: <code class="token">{made}</code>
        </p>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label="All tokens">
        <table>
          <thead>
            <tr>
              <th scope="col">For</th>
              <th scope="col">Role</th>
              <th scope="col">Tenant</th>
              <th scope="col">Node</th>
              <th scope="col">Since</th>
              <th scope="col">Until</th>
              <th scope="col">Actions</th>
            </tr>
          </thead>
          <tbody>
            {entries?.map((token) => (
              <tr key={token.id}>
                <th scope="row">{token.name}</th>
                <td>{token.role}</td>
                <td>{token.tenant ?? "all vehicles"}</td>
                <td>{token.node}</td>
                <td>{token.created.slice(0, 10)}</td>
                <td>{token.revoked ? "revoked" : token.expires?.slice(0, 10)}</td>
                <td>
                  {!token.revoked && (
                    <button type="button" aria-label={`Revoke ${token.name}`} onClick={() => revoke(token)}>
                      Revoke
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
