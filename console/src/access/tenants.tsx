/** To whom vehicles, users and tokens belong: made, renamed, removed. */

import { useState } from "preact/hooks";
import type { Tenant } from "../api/types";
import { useLive } from "../shell/context";
import { Field, Form } from "../shell/form";
import { administratesWhole, useMay } from "../shell/may-operate";
import { Only } from "../shell/only";
import { Table } from "../shell/table";
import { filled, type Listed, useListed } from "./listed";

/** Vehicles that are made without a tenant belong to it. */
const DEFAULT = "default";
const COLUMNS = ["Name", "Id"];

export function Tenants() {
  const listed = useListed<Tenant>("v1/tenants", "tenants");
  const mayChange = useMay(administratesWhole);
  const [renamed, setRenamed] = useState<Tenant>();
  return (
    <>
      <Only may={administratesWhole} otherwise="Tenants are made, renamed and removed by administrators of the whole.">
        <TenantForm key={renamed?.id ?? ""} listed={listed} renamed={renamed} leave={() => setRenamed(undefined)} />
      </Only>
      <p class="flaw" role="alert">
        {listed.flaw}
      </p>
      <Table label="All tenants" columns={mayChange ? [...COLUMNS, "Actions"] : COLUMNS}>
        {listed.entries?.map((one) => (
          <tr key={one.id}>
            <th scope="row">{one.name}</th>
            <td>{one.id}</td>
            {mayChange && (
              <td>
                <Actions of={one} listed={listed} rename={() => setRenamed(one)} />
              </td>
            )}
          </tr>
        ))}
      </Table>
    </>
  );
}

interface FormProps {
  listed: Listed<Tenant>;
  /** Absent: a new one is made. */
  renamed: Tenant | undefined;
  leave: () => void;
}

function TenantForm({ listed: { entries, members, change }, renamed, leave }: FormProps) {
  const { client } = useLive();
  const [taken, setTaken] = useState<string>();
  const send = async (form: HTMLFormElement) => {
    const { id = renamed?.id ?? "", name } = filled(form);
    // The service would rename the one that is there.
    const isTaken = !renamed && entries?.some((one) => one.id === id);
    setTaken(isTaken ? `there is a tenant ${id} already` : undefined);
    if (isTaken) return false;
    const done = await change(() => client.send("PUT", pathOf(id), { name }));
    if (done && renamed) leave();
    return done;
  };
  return (
    <Form
      label={renamed ? `Rename the tenant ${renamed.id}` : "Make a tenant"}
      action={renamed ? "Rename" : "Make"}
      send={send}
      wrong={taken === undefined ? members : { id: taken }}
      disabled={!entries}
      after={
        renamed && (
          <button type="button" onClick={leave}>
            Leave it
          </button>
        )
      }
    >
      {!renamed && <Field label="Id" name="id" required maxLength={64} pattern="[a-z0-9][a-z0-9_\-]*" autocomplete="off" autocapitalize="none" />}
      <Field label="Name" name="name" required maxLength={200} autocomplete="off" defaultValue={renamed?.name ?? ""} />
    </Form>
  );
}

interface ActionsProps {
  of: Tenant;
  listed: Listed<Tenant>;
  rename: () => void;
}

function Actions({ of: { id, name }, listed: { change }, rename }: ActionsProps) {
  const { client } = useLive();
  const remove = () => {
    if (confirm(`Remove the tenant ${name}? That is refused while anything belongs to it.`)) {
      void change(() => client.delete(pathOf(id)));
    }
  };
  return (
    <>
      <button type="button" aria-label={`Rename ${name}`} onClick={rename}>
        Rename
      </button>{" "}
      {id !== DEFAULT && (
        <button type="button" aria-label={`Remove ${name}`} onClick={remove}>
          Remove
        </button>
      )}
    </>
  );
}

function pathOf(id: string): string {
  return `v1/tenants/${encodeURIComponent(id)}`;
}
