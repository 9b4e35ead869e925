/** The maps that obstructions come from: replaced as a whole, or removed. */

import { useState } from "preact/hooks";
import { useListed } from "../access/listed";
import { useLive } from "../shell/context";
import { counted } from "../shell/counted";
import { bytes } from "../shell/format";
import { Field, Flaw, Form } from "../shell/form";
import { useMayOperate } from "../shell/may-operate";
import { Table } from "../shell/table";
import { featureLines } from "./features";

/** The service learns and forgets these places by itself. */
const LEARNED = "learned";
/** The service's limit; a browser may crash on a file that does not fit its memory. */
const MOST_BYTES = 256 << 20;

interface Listed {
  source: string;
  obstructions: number;
  /** Present if the map was imported with its ground. */
  tiles?: { content_bytes: number };
}

interface Taken {
  obstructions: number;
  removed: number;
}

export function Maps() {
  const { client } = useLive();
  const mayOperate = useMayOperate();
  const { entries, flaw, change } = useListed<Listed>("v1/maps", "maps");
  const [said, setSaid] = useState<string>();

  const replace = async (form: HTMLFormElement) => {
    const given = new FormData(form);
    const [source, file] = [String(given.get("source")), given.get("file")];
    const known = entries?.find((one) => one.source === source);
    const what = `Replace ${source}, with its ${counted(known?.obstructions ?? 0, "obstruction")} and its ground, by what the file has?`;
    if (known && !confirm(what)) return false;
    setSaid("working…");
    let taken: Taken | undefined;
    const ok = await change(async () => {
      const chosen = file instanceof File ? file : new Blob();
      if (chosen.size > MOST_BYTES) throw new Error("The file has more than 256 MiB: divide it into several maps.");
      const lines = featureLines(await chosen.text());
      const body = new Blob([lines], { type: "application/geo+json-seq" });
      taken = await client.upload<Taken>("PUT", pathOf(source), body);
    });
    setSaid(taken && `${source} has ${counted(taken.obstructions, "obstruction")} now; ${taken.removed} of the former ${taken.removed === 1 ? "is" : "are"} gone.`);
    return ok;
  };
  const remove = (source: string) => {
    setSaid(undefined);
    if (confirm(`Remove all obstructions of ${source}, and its ground? What is planned with them is planned anew.`)) {
      void change(() => client.delete(pathOf(source)));
    }
  };
  return (
    <>
      {mayOperate && (
        <Form label="Replace a map" action="Replace" send={replace} disabled={!entries}>
          <Field label="Name" name="source" required maxLength={64} autocomplete="off" list="maps" />
          <Field label="GeoJSON" name="file" type="file" required accept=".geojson,.json" />
        </Form>
      )}
      <datalist id="maps">
        {entries?.map(({ source }) => (
          <option key={source} value={source} />
        ))}
      </datalist>
      <Flaw>{flaw}</Flaw>
      <p role="status">{said}</p>
      {entries?.length === 0 && <p>There are none: no blockage is foreseen by a map.</p>}
      <Table label="All maps" columns={["Map", { number: "Obstructions" }, { number: "Ground" }, "Actions"]}>
        {entries?.map(({ source, obstructions, tiles }) => (
          <tr key={source}>
            <th scope="row">{source}</th>
            <td class="number">{obstructions}</td>
            <td class="number">{tiles ? bytes(tiles.content_bytes) : "none"}</td>
            <td>
              {mayOperate && source !== LEARNED && (
                <button type="button" aria-label={`Remove ${source}`} onClick={() => remove(source)}>
                  Remove
                </button>
              )}
            </td>
          </tr>
        ))}
      </Table>
    </>
  );
}

function pathOf(source: string): string {
  return `v1/maps/${encodeURIComponent(source)}`;
}
