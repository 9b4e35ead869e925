import type { User } from "../api/types";
import { useLive } from "../shell/context";
import { RoleField, TenantField } from "./fields";
import { filled, useListed } from "./listed";

const ROLES = ["viewer", "operator", "administrator"];

export function Users() {
  const { client } = useLive();
  const { entries, flaw, change } = useListed<User>("v1/users", "users");

  const set = async (event: Event) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const { name = "", ...body } = filled(form);
    if (await change(() => client.send("PUT", pathOf(name), body))) form.reset();
  };
  /** Shows what a user has already, so that setting a password changes nothing else unseen. */
  const show = (event: Event) => {
    const field = event.currentTarget as HTMLInputElement;
    const known = entries?.find(({ name }) => name === field.value);
    if (!known || !field.form) return;
    for (const name of ["role", "tenant"] as const) {
      (field.form.elements.namedItem(name) as HTMLSelectElement).value = known[name] ?? "";
    }
  };
  const remove = (name: string) => {
    if (confirm(`Remove ${name}? All sessions of this user end at once.`)) {
      void change(() => client.delete(pathOf(name)));
    }
  };
  return (
    <>
      <form class="tools" aria-label="Set a user" onSubmit={(event) => void set(event)}>
        <label>
          Name{" "}
          <input name="name" required maxLength={64} autocomplete="off" autocapitalize="none" onInput={show} />
        </label>
        <RoleField roles={ROLES} />
        <TenantField />
        <label>
          Password <input name="password" type="password" minLength={12} maxLength={256} autocomplete="new-password" />
        </label>
        {/* Until it is known who is there, a name that is there would get another role unseen. */}
        <button type="submit" disabled={!entries}>
          Set
        </button>
      </form>
      <p class="count">A name that is there already is changed; without a password, it keeps its own.</p>
      <p class="flaw" role="alert">
        {flaw}
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="All users">
        <table>
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Role</th>
              <th scope="col">Tenant</th>
              <th scope="col">Signs in by</th>
              <th scope="col">Since</th>
              <th scope="col">Actions</th>
            </tr>
          </thead>
          <tbody>
            {entries?.map((user) => (
              <tr key={user.name}>
                <th scope="row">{user.name}</th>
                <td>{user.role}</td>
                <td>{user.tenant ?? "all vehicles"}</td>
                <td>{user.issuer ?? "password"}</td>
                <td>{user.created.slice(0, 10)}</td>
                <td>
                  <button type="button" aria-label={`Remove ${user.name}`} onClick={() => remove(user.name)}>
                    Remove
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function pathOf(name: string): string {
  return `v1/users/${encodeURIComponent(name)}`;
}
