/** Tenants, the owners of vehicles, users and tokens: made, renamed, removed. */

import { useState } from "preact/hooks";
import type { Tenant } from "../api/types";
import { useLive } from "../shell/context";
import { Flaw } from "../shell/form";
import { administratesWhole, useMay } from "../shell/may-operate";
import { NamedForm } from "../shell/named-form";
import { Only } from "../shell/only";
import { Table } from "../shell/table";
import { filled, useListed } from "./listed";

/** The tenant of vehicles that are made without one. */
const DEFAULT = "default";
const COLUMNS = ["Name", "Id"];

export function Tenants() {
  const { client } = useLive();
  const { entries, flaw, members, change } = useListed<Tenant>("v1/tenants", "tenants");
  const mayChange = useMay(administratesWhole);
  const [renaming, setRenaming] = useState<string>();
  // Otherwise a tenant removed meanwhile would be made again.
  const renamed = entries?.find(({ id }) => id === renaming);
  const send = async (id: string, form: HTMLFormElement) => {
    const done = await change(() => client.send("PUT", pathOf(id), { name: filled(form).name }));
    // Another tenant may have been chosen meanwhile.
    if (done) setRenaming((now) => (now === id ? undefined : now));
    return done;
  };
  const remove = ({ id, name }: Tenant) => {
    if (confirm(`Remove the tenant ${name}? That is refused while anything belongs to it.`)) {
      void change(() => client.delete(pathOf(id)));
    }
  };
  return (
    <>
      <Only may={administratesWhole} otherwise="Tenants are made, renamed and removed by administrators of the whole.">
        <NamedForm
          key={renamed?.id ?? ""}
          what="tenant"
          verb="Rename"
          changed={renamed}
          isThere={entries && ((id) => entries.some((one) => one.id === id))}
          members={members}
          send={send}
          leave={() => setRenaming(undefined)}
        />
      </Only>
      <Flaw>{flaw}</Flaw>
      <Table label="All tenants" columns={mayChange ? [...COLUMNS, "Actions"] : COLUMNS}>
        {entries?.map((one) => (
          <tr key={one.id}>
            <th scope="row">{one.name}</th>
            <td>{one.id}</td>
            {mayChange && (
              <td>
                <button type="button" aria-label={`Rename ${one.name}`} onClick={() => setRenaming(one.id)}>
                  Rename
                </button>{" "}
                {one.id !== DEFAULT && (
                  <button type="button" aria-label={`Remove ${one.name}`} onClick={() => remove(one)}>
                    Remove
                  </button>
                )}
              </td>
            )}
          </tr>
        ))}
      </Table>
    </>
  );
}

function pathOf(id: string): string {
  return `v1/tenants/${encodeURIComponent(id)}`;
}
