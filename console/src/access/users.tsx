import type { User } from "../api/types";
import { useLive } from "../shell/context";
import { Field, Form } from "../shell/form";
import { Table } from "../shell/table";
import { RoleField, TenantField } from "./fields";
import { filled, useListed } from "./listed";

const ROLES = ["viewer", "operator", "administrator"];

export function Users() {
  const { client } = useLive();
  const { entries, flaw, members, change } = useListed<User>("v1/users", "users");

  const set = (form: HTMLFormElement) => {
    const { name = "", ...body } = filled(form);
    // Only if nobody else has changed the user since the list was read, or made one of that name.
    const known = entries?.find((user) => user.name === name);
    return change(async () => {
      const there = known ? [] : await client.all<User>("v1/users", "users");
      if (there.some((user) => user.name === name)) {
        throw new Error(`Nothing was done, since somebody else was first: there is a user ${name} already.`);
      }
      await client.send("PUT", pathOf(name), body, known?.revision);
    });
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
  const remove = ({ name, revision }: User) => {
    if (confirm(`Remove ${name}? All sessions of this user end at once.`)) {
      void change(() => client.delete(pathOf(name), revision));
    }
  };
  return (
    <>
      {/* Until it is known who is there, a name that is there would get another role unseen. */}
      <Form label="Set a user" action="Set" send={set} wrong={members} disabled={!entries}>
        <Field label="Name" name="name" required maxLength={64} autocomplete="off" autocapitalize="none" onInput={show} />
        <RoleField roles={ROLES} />
        <TenantField />
        <Field label="Password" name="password" type="password" minLength={12} maxLength={256} autocomplete="new-password" />
      </Form>
      <p class="count">A name that is there already is changed; without a password, it keeps its own.</p>
      <p class="flaw" role="alert">
        {flaw}
      </p>
      {entries?.length === 0 && <p>There are none: all come by tokens.</p>}
      <Table label="All users" columns={["Name", "Role", "Tenant", "Signs in by", "Since", "Actions"]}>
        {entries?.map((user) => (
          <tr key={user.name}>
            <th scope="row">{user.name}</th>
            <td>{user.role}</td>
            <td>{user.tenant ?? "all vehicles"}</td>
            <td>{user.issuer ?? "password"}</td>
            <td>{user.created.slice(0, 10)}</td>
            <td>
              <button type="button" aria-label={`Remove ${user.name}`} onClick={() => remove(user)}>
                Remove
              </button>
            </td>
          </tr>
        ))}
      </Table>
    </>
  );
}

function pathOf(name: string): string {
  return `v1/users/${encodeURIComponent(name)}`;
}
