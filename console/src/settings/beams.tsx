/** Beams, with their capacity and footprint: makes, changes and removes them. */

import { useState } from "preact/hooks";
import { filled, textOf, useListed } from "../access/listed";
import { readToChange, type Revised } from "../api/revised";
import type { Beam, Footprint } from "../api/types";
import { useLive } from "../shell/context";
import { Field, Flaw } from "../shell/form";
import { bps } from "../shell/format";
import { useMayOperate } from "../shell/may-operate";
import { NamedForm } from "../shell/named-form";
import { hashOf } from "../shell/route";
import { Table, type Column } from "../shell/table";
import { areaOf, positionsOf } from "./features";

const COLUMNS: Column[] = [
  "Beam",
  "Id",
  ...["Forward", "Return", "One way"].map((number) => ({ number })),
  "Fair share of",
  "Footprint",
];
/** Of a new beam. */
const DELAY_MS = 300;

export function Beams() {
  const { client, fleet } = useLive();
  const mayOperate = useMayOperate();
  const { entries, flaw, members, change } = useListed<Beam>("v1/beams", "beams");
  const [edited, setEdited] = useState<Revised<Beam>>();
  const [said, setSaid] = useState<string>();

  const edit = (id: string) =>
    change(async () => {
      setSaid(undefined);
      setEdited(await readToChange<Beam>(client, pathOf(id)));
    });
  const put = async (id: string, body: unknown) => {
    const done = await change(() => client.send("PUT", pathOf(id), body, edited?.revision));
    if (done) setSaid(edited ? `${id} is changed.` : `${id} is made.`);
    // The user may have chosen another beam meanwhile.
    if (done) setEdited((now) => (now === edited ? undefined : now));
    return done;
  };
  const remove = (id: string) => {
    setSaid(undefined);
    if (confirm(`Remove the beam ${id}? That is refused while it has terminals.`)) {
      void change(() => client.delete(pathOf(id)));
    }
  };
  return (
    <>
      {mayOperate && (
        <BeamForm
          key={edited?.value.id ?? ""}
          edited={edited?.value}
          members={members}
          // Others may have made a beam since the list was read.
          isThere={entries && ((id) => fleet.beams.has(id) || entries.some((one) => one.id === id))}
          put={put}
          leave={() => setEdited(undefined)}
        />
      )}
      <Flaw>{flaw}</Flaw>
      <p role="status">{said}</p>
      <Table label="All beams" columns={mayOperate ? [...COLUMNS, "Actions"] : COLUMNS}>
        {entries?.map((beam) => (
          <tr key={beam.id}>
            <th scope="row">
              <a href={hashOf("beams", beam.id)}>{beam.name}</a>
            </th>
            <td>{beam.id}</td>
            <td class="number">{bps(beam.forward_capacity_bps)}</td>
            <td class="number">{bps(beam.return_capacity_bps)}</td>
            <td class="number">{beam.one_way_delay_ms} ms</td>
            <td>{beam.fair_share}</td>
            <td>{beam.footprint ? `${positionsOf(beam.footprint)} positions` : "none"}</td>
            {mayOperate && (
              <td>
                <button type="button" aria-label={`Change ${beam.id}`} onClick={() => void edit(beam.id)}>
                  Change
                </button>{" "}
                <button type="button" aria-label={`Remove ${beam.id}`} onClick={() => remove(beam.id)}>
                  Remove
                </button>
              </td>
            )}
          </tr>
        ))}
      </Table>
    </>
  );
}

interface FormProps {
  /** Absent for a new beam. */
  edited: Beam | undefined;
  members: Readonly<Record<string, string>>;
  /** Tells whether a beam exists; absent until the list has been read. */
  isThere: ((id: string) => boolean) | undefined;
  put: (id: string, body: unknown) => Promise<boolean>;
  leave: () => void;
}

function BeamForm({ edited, members, isThere, put, leave }: FormProps) {
  const [wrong, setWrong] = useState<string>();
  const send = async (id: string, form: HTMLFormElement) => {
    const { name, forward, back, delay, share, opensand, satellite } = filled(form);
    try {
      const body = {
        name,
        forward_capacity_bps: Math.round(1e6 * Number(forward)),
        return_capacity_bps: Math.round(1e6 * Number(back)),
        one_way_delay_ms: Number(delay),
        fair_share: share,
        opensand,
        satellite,
        footprint: await footprintOf(new FormData(form), edited?.footprint ?? undefined),
      };
      setWrong(undefined);
      return await put(id, body);
    } catch (error) {
      // The chosen file is no area.
      setWrong(textOf(error));
      return false;
    }
  };
  const mbps = (label: string, field: string, member: string, value: number | undefined) => (
    <Field
      label={`${label}, Mbit/s`}
      name={field}
      member={member}
      type="number"
      required
      min="0"
      max="1000000"
      step="any"
      defaultValue={value === undefined ? "" : String(value / 1e6)}
    />
  );
  return (
    <NamedForm what="beam" verb="Change" changed={edited} isThere={isThere} members={members} send={send} leave={leave}>
      {mbps("Forward", "forward", "forward_capacity_bps", edited?.forward_capacity_bps)}
      {mbps("Return", "back", "return_capacity_bps", edited?.return_capacity_bps)}
      <Field
        label="One way, ms"
        name="delay"
        member="one_way_delay_ms"
        type="number"
        required
        min="0"
        max="10000"
        step="1"
        defaultValue={String(edited?.one_way_delay_ms ?? DELAY_MS)}
      />
      <label>
        Fair share of{" "}
        <select name="share">
          {["symbols", "bits"].map((share) => (
            <option key={share} selected={share === edited?.fair_share}>
              {share}
            </option>
          ))}
        </select>
      </label>
      <Field label="OpenSAND NCC" name="opensand" maxLength={200} placeholder="opensand://HOST" autocomplete="off" defaultValue={edited?.opensand ?? ""} />
      <Field label="Satellite" name="satellite" maxLength={32} placeholder="as in obstructions" autocomplete="off" defaultValue={edited?.satellite ?? ""} />
      <Field label="Footprint, GeoJSON" name="footprint" type="file" accept=".geojson,.json" />
      {edited?.footprint && (
        <label>
          <input name="none" type="checkbox" /> without a footprint
        </label>
      )}
      {wrong && <Flaw>{wrong}</Flaw>}
    </NamedForm>
  );
}

/** Returns the area of the chosen file, or else the beam's present one. */
async function footprintOf(given: FormData, before: Footprint | undefined): Promise<Footprint | undefined> {
  const file = given.get("footprint");
  if (file instanceof File && file.size > 0) return areaOf(await file.text());
  return given.has("none") ? undefined : before;
}

function pathOf(id: string): string {
  return `v1/beams/${encodeURIComponent(id)}`;
}
