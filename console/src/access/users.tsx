import { useEffect, useRef } from "preact/hooks";
import type { Tenant, User } from "../api/types";
import { useLive } from "../shell/context";
import { Field, Flaw, Form } from "../shell/form";
import { Table } from "../shell/table";
import { RoleField, TenantField } from "./fields";
import { filled, useListed } from "./listed";

const ROLES = ["viewer", "operator", "administrator"];

export function Users() {
  const { client } = useLive();
  const { entries, flaw, members, change } = useListed<User>("v1/users", "users");
  const tenants = useListed<Tenant>("v1/tenants", "tenants");
  // A tenant that is not known yet could not be shown: its user would seem to be of the whole system.
  const isKnown = entries !== undefined && tenants.entries !== undefined;
  /** The user in the form, as first shown: the list may have been read again since. */
  const shown = useRef<User | undefined>(undefined);
  /** The form whose change has not been made. */
  const refused = useRef<HTMLFormElement | undefined>(undefined);

  const set = (form: HTMLFormElement) => {
    const { name = "", ...body } = filled(form);
    // Only if no one else has changed the user since it was shown, or made one of that name.
    const known = shown.current?.name === name ? shown.current : undefined;
    return change(async () => {
      try {
        const there = known ? [] : await client.all<User>("v1/users", "users");
        if (there.some((user) => user.name === name)) {
          throw new Error(`Nothing was done, since somebody else was first: there is a user ${name} already.`);
        }
        await client.send("PUT", pathOf(name), body, known?.revision);
      } catch (error) {
        refused.current = form;
        throw error;
      }
    });
  };
  /**
   * Shows what a user has already, so that setting a password changes nothing else unseen; and no longer
   * what ada has, once her name has become adam's.
   */
  const show = (form: HTMLFormElement) => {
    const { value } = form.elements.namedItem("name") as HTMLInputElement;
    const known = entries?.find(({ name }) => name === value);
    if (!known && !shown.current) return;
    shown.current = known;
    const { role, tenant } = known ?? { role: ROLES[0], tenant: undefined };
    (form.elements.namedItem("role") as HTMLSelectElement).value = role ?? "";
    (form.elements.namedItem("tenant") as HTMLSelectElement).value = tenant ?? "";
  };
  const typeName = (event: Event) => {
    const { form } = event.currentTarget as HTMLInputElement;
    if (form) show(form);
  };
  // After a conflict, show the present state before the user sets it again.
  useEffect(() => {
    const form = refused.current;
    refused.current = undefined;
    if (!form) return;
    const { value } = form.elements.namedItem("name") as HTMLInputElement;
    const known = entries?.find(({ name }) => name === value);
    if (known?.revision !== shown.current?.revision) show(form);
  }, [entries]);
  const remove = ({ name, revision }: User) => {
    if (confirm(`Remove ${name}? All sessions of this user end at once.`)) {
      void change(() => client.delete(pathOf(name), revision));
    }
  };
  const endSessions = ({ name }: User) => {
    if (confirm(`End all sessions of ${name}? Who has the password can sign in again.`)) {
      void change(() => client.delete(`${pathOf(name)}/sessions`));
    }
  };
  return (
    <>
      {/* Until it is known who is there, a name that is there would get another role unseen. */}
      <Form label="Set a user" action="Set" send={set} emptied={() => (shown.current = undefined)} wrong={members} disabled={!isKnown}>
        <Field label="Name" name="name" required disabled={!isKnown} maxLength={64} autocomplete="off" autocapitalize="none" onInput={typeName} />
        <RoleField roles={ROLES} />
        <TenantField of={tenants.entries && withThoseOf(tenants.entries, entries ?? [])} />
        <Field label="Password" name="password" type="password" minLength={12} maxLength={256} autocomplete="new-password" />
      </Form>
      <p class="count">A name that is there already is changed; without a password, it keeps its own.</p>
      <Flaw>{flaw ?? tenants.flaw}</Flaw>
      {entries?.length === 0 && <p>There are none: all come by tokens.</p>}
      <Table label="All users" columns={["Name", "Role", "Tenant", "Signs in by", "Since, UTC", "Actions"]}>
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
              </button>{" "}
              <button type="button" aria-label={`End all sessions of ${user.name}`} onClick={() => endSessions(user)}>
                End sessions
              </button>
            </td>
          </tr>
        ))}
      </Table>
    </>
  );
}

/** The tenants, and those that have been made since they were read: a user's own can be shown always. */
function withThoseOf(tenants: readonly Tenant[], users: readonly User[]): Tenant[] {
  const ids = new Set(tenants.map(({ id }) => id));
  const others = new Set(users.flatMap(({ tenant }) => (tenant && !ids.has(tenant) ? [tenant] : [])));
  return [...tenants, ...[...others].map((id) => ({ id, name: id }))];
}

function pathOf(name: string): string {
  return `v1/users/${encodeURIComponent(name)}`;
}
