/** Slices of functions: shows chains and health; instantiates, configures, scales, heals, terminates. */

import { useRef } from "preact/hooks";
import { useListed } from "../access/listed";
import type { Client } from "../api/client";
import type { ContainerState, FunctionKind, FunctionOfSlice, Slice } from "../api/types";
import { useLive } from "../shell/context";
import { dated } from "../shell/dates";
import { Flaw, Form } from "../shell/form";
import { useMayOperateOwn } from "../shell/may-operate";
import { Failure, useRead } from "../shell/read";
import { Table } from "../shell/table";
import { download } from "./saved";
import { type Downloaded, SliceForm } from "./slice-form";
import { pathOf, setOf } from "./slice-text";

/** Sites report their slices every five seconds; no event tells of them. */
const READ_EVERY_MS = 5_000;
const KINDS_EVERY_MS = 600_000;
const BADGES = { running: "up", degraded: "ahead", waiting: "waiting", ending: "waiting", failed: "down" } as const;
const HEALTH = { healthy: "up", starting: "waiting", unhealthy: "down", none: "silent" } as const;

type Change = (work: () => Promise<unknown>) => Promise<boolean>;

export function Slices() {
  const { client } = useLive();
  const { entries, flaw, change } = useListed<Slice>("v1/slices", "slices", { everyMs: READ_EVERY_MS });
  const kinds = useRead<{ functions: FunctionKind[] }>(
    (signal) => client.get("v1/functions", signal),
    "functions",
    KINDS_EVERY_MS,
  );
  const mayOperate = useMayOperateOwn();
  const { current: downloaded } = useRef<Downloaded>(new Map());
  return (
    <>
      <p>
        A slice is a tenant's chain of functions, with networks of its own. Its site's agent runs it, and says how it
        is.
      </p>
      <Failure of={kinds} />
      {mayOperate && <SliceForm slices={entries ?? []} downloaded={downloaded} change={change} />}
      <Flaw>{flaw}</Flaw>
      {entries?.length === 0 && <p>There are none.</p>}
      {entries?.map((one) => (
        <SliceCard key={one.name} slice={one} kinds={kinds.value?.functions ?? []} downloaded={downloaded} change={change} />
      ))}
      {kinds.value && <Kinds kinds={kinds.value.functions} />}
    </>
  );
}

interface CardProps {
  slice: Slice;
  kinds: FunctionKind[];
  downloaded: Downloaded;
  change: Change;
}

function SliceCard({ slice, kinds, downloaded, change }: CardProps) {
  const { client } = useLive();
  const mayChange = useMayOperateOwn() && slice.state !== "ending";
  const terminate = () => {
    const what = `Terminate ${slice.name}? Its containers go, with all that they keep.`;
    if (confirm(what)) void change(() => client.delete(pathOf(slice.name), slice.revision));
  };
  const save = () => {
    download(fileOf(slice), `${slice.name}.json`);
    downloaded.set(slice.name, slice.revision);
  };
  return (
    <section class="card" aria-labelledby={`slice-${slice.name}`}>
      <h2 id={`slice-${slice.name}`}>
        {slice.name} <span class={`badge ${BADGES[slice.state]}`}>{slice.state}</span>
      </h2>
      <p>
        of {slice.tenant}, at the site {slice.site}, revision {slice.revision},{" "}
        {slice.reported ? `last heard of ${dated(Date.parse(slice.reported))} UTC` : "not heard of yet"}
      </p>
      {slice.detail && <p class="flaw">{slice.detail}</p>}
      <p>Networks: {slice.networks.map(({ name, attachment }) => (attachment ? `${name} (${attachment})` : name)).join(", ")}</p>
      <Table label={`Functions of ${slice.name}`} columns={["Function", "Kind", "Between", "Containers", "Actions"]}>
        {slice.functions.map((one) => (
          <tr key={one.name}>
            <th scope="row">{one.name}</th>
            <td>{one.function}</td>
            <td>{one.networks.map(({ network }) => network).join(" → ")}</td>
            <td>
              <Containers of={one} all={slice.containers} />
            </td>
            <td>
              {mayChange && (
                <Actions
                  slice={slice.name}
                  of={one}
                  most={kinds.find(({ name }) => name === one.function)?.most_replicas ?? 1}
                  client={client}
                  change={change}
                />
              )}
            </td>
          </tr>
        ))}
      </Table>
      <p class="tools">
        <button type="button" aria-label={`Download ${slice.name}`} onClick={save}>
          Download
        </button>
        {mayChange && (
          <button type="button" aria-label={`Terminate ${slice.name}`} onClick={terminate}>
            Terminate
          </button>
        )}
      </p>
    </section>
  );
}

function Containers({ of: { name, replicas }, all }: { of: FunctionOfSlice; all: ContainerState[] }) {
  const found = all.filter((one) => one.name.startsWith(`${name}.`));
  if (found.length === 0) return <>{replicas} to be made</>;
  return (
    <>
      {found.map((one) => (
        <span key={one.name} class={`badge ${HEALTH[one.health]}`}>
          {one.name}: {one.health === "none" ? one.state : one.health}
        </span>
      ))}
    </>
  );
}

interface ActionsProps {
  slice: string;
  of: FunctionOfSlice;
  /** How many replicas its kind may have. */
  most: number;
  client: Client;
  change: Change;
}

function Actions({ slice, of: { name, replicas }, most, client, change }: ActionsProps) {
  const path = `${pathOf(slice)}/functions/${encodeURIComponent(name)}`;
  const scale = (form: HTMLFormElement) => {
    const count = Number(new FormData(form).get("replicas"));
    // `false` keeps the choice in the form.
    return change(() => client.send("PUT", `${path}/replicas`, { replicas: count })).then(() => false);
  };
  const heal = () => {
    const what = `Heal ${name} of ${slice}? Its containers are made anew, with the same volumes; what goes through them breaks off.`;
    if (confirm(what)) void change(() => client.post(`${path}/heal`, undefined));
  };
  return (
    <span class="tools">
      {most > 1 && (
        <Form label={`Scale ${name}`} action="Scale" send={scale}>
          <select name="replicas" aria-label={`Replicas of ${name}`}>
            {Array.from({ length: most }, (_, index) => (
              <option key={index} selected={index + 1 === replicas}>
                {index + 1}
              </option>
            ))}
          </select>
        </Form>
      )}
      <button type="button" aria-label={`Heal ${name}`} onClick={heal}>
        Heal
      </button>
    </span>
  );
}

function Kinds({ kinds }: { kinds: FunctionKind[] }) {
  const columns = ["Kind", "What it is", { number: "CPUs" }, { number: "Memory" }, { number: "Replicas" }];
  return (
    <details>
      <summary>Kinds of functions</summary>
      <Table label="Kinds of functions" columns={columns}>
        {kinds.map((one) => (
          <tr key={one.name}>
            <th scope="row">{one.name}</th>
            <td>{one.summary}</td>
            <td class="number">{one.cpus}</td>
            <td class="number">{one.memory_mb} MB</td>
            <td class="number">{one.most_replicas}</td>
          </tr>
        ))}
      </Table>
    </details>
  );
}

/** A slice as a file. */
function fileOf(slice: Slice): Blob {
  return new Blob([JSON.stringify(setOf(slice), null, 2)], { type: "application/json" });
}
