/** Starts a rollout, once the operator has seen what it changes: of which terminals, in which stages. */

import { useRef, useState } from "preact/hooks";
import { filled, textOf } from "../access/listed";
import { Choice } from "../shell/choice";
import { useLive } from "../shell/context";
import { Field, Flaw, Flawed, Form } from "../shell/form";
import { RolloutLook, type Seen, seenOf } from "./rollout-look";
import { POLICIES, rolloutOf } from "./rollout-text";

/** The service's limit. */
const MOST_S = 31 * 86_400;
const WHO = [
  ["all of a beam", "beam"],
  ["all with a tag", "tag"],
  ["those with the numbers", "terminals"],
] as const;
const WHAT = [
  ["a class", "class"],
  ["a path", "path"],
  ["what a JSON file has", "file"],
] as const;

interface Props {
  /** What the service found wrong with the last request, by member. */
  members: Readonly<Record<string, string>>;
  change: (work: () => Promise<unknown>) => Promise<boolean>;
  make: (body: Record<string, unknown>) => Promise<boolean>;
}

export function RolloutForm({ members, change, make }: Props) {
  const { client, fleet } = useLive();
  const [seen, setSeen] = useState<Seen>();
  const asked = useRef<HTMLFormElement>(undefined);
  // How many edits there were: what is seen or begun is of the form as it was sent.
  const edits = useRef(0);
  const [who, setWho] = useState(0);
  const [what, setWhat] = useState(0);
  const [wrong, setWrong] = useState<string>();
  const submit = async (form: HTMLFormElement) => {
    setWrong(undefined);
    setSeen(undefined);
    asked.current = form;
    const sent = edits.current;
    let body: Record<string, unknown>;
    try {
      const file = new FormData(form).get("file");
      body = rolloutOf(filled(form), file instanceof File ? await file.text() : undefined);
    } catch (error) {
      setWrong(textOf(error));
      return false;
    }
    await change(async () => {
      const found = await seenOf(client, body, fleet.terminals.values());
      if (edits.current === sent) setSeen(found);
    });
    // It is emptied once the rollout has begun.
    return false;
  };
  const begin = async ({ body }: Seen) => {
    setSeen(undefined);
    const sent = edits.current;
    // A next rollout that somebody has begun to type meanwhile stays.
    if (!(await make(body)) || edits.current !== sent) return;
    asked.current?.reset();
    setWho(0);
    setWhat(0);
  };
  const edited = () => {
    edits.current += 1;
    setSeen(undefined);
  };
  return (
    <div onInput={edited}>
      <Form label="Begin a rollout" action="Roll out" send={submit} wrong={members}>
        <Field label="Name" name="name" required maxLength={200} autocomplete="off" />
        <Choice label="Which terminals" of={WHO} value={who} onChange={setWho} />
        <Terminals by={WHO[who]?.[1] ?? "beam"} />
        <Choice label="What changes" of={WHAT} value={what} onChange={setWhat} />
        <Change of={WHAT[what]?.[1] ?? "class"} />
        <label>
          <input name="whole" type="checkbox" /> and take away what else was set from afar
        </label>
        <Field label="Terminals of each stage" name="stages" pattern="[0-9, ]*" placeholder="1, 10" autocomplete="off" />
        {number("Each holds for, s", "hold_s", "300", "0", MOST_S)}
        {number("Late after, s", "wait_s", "3600", "1", MOST_S)}
        {number("May fail", "most_failures", "0", "0", 1e6, "1")}
      </Form>
      <Flaw>{wrong}</Flaw>
      {seen && <RolloutLook seen={seen} begin={() => void begin(seen)} leave={() => setSeen(undefined)} />}
    </div>
  );
}

function Terminals({ by }: { by: "beam" | "tag" | "terminals" }) {
  const { fleet } = useLive();
  if (by === "tag") return <Field key={by} label="Tag" name="tag" required autocomplete="off" />;
  if (by === "terminals") {
    return <Field key={by} label="Numbers" name="terminals" required pattern="[0-9, ]*" placeholder="10, 11" autocomplete="off" />;
  }
  return (
    <Flawed key={by} member="beam">
      {(flaw) => (
        <label>
          Beam{" "}
          <select name="beam" required {...flaw}>
            {[...fleet.beams.values()].map((beam) => (
              <option key={beam.id} value={beam.id}>
                {beam.name}
              </option>
            ))}
          </select>
        </label>
      )}
    </Flawed>
  );
}

function Change({ of }: { of: "class" | "path" | "file" }) {
  if (of === "file") return <Field key={of} label="Settings, JSON" name="file" type="file" required accept=".json" />;
  if (of === "path") {
    return (
      <>
        <Field key={of} label="Path" name="path" required maxLength={128} autocomplete="off" />
        {rate("Sends at most, Mbit/s", "send")}
        {rate("Receives at most, Mbit/s", "receive")}
        {select("Direction", "direction", ["both", "receive"])}
      </>
    );
  }
  return (
    <>
      <Field key={of} label="Class" name="class" required maxLength={128} autocomplete="off" />
      {number("Weight", "weight", "as it is", "1", 2 ** 32 - 1, "1")}
      {select("Policy", "policy", POLICIES)}
      <Field key="by" label="By the paths" name="by" placeholder="lte, satellite" autocomplete="off" />
    </>
  );
}

function number(label: string, name: string, otherwise: string, min: string, max: number, step = "any") {
  return <Field key={name} label={label} name={name} type="number" min={min} max={max} step={step} placeholder={otherwise} />;
}

function rate(label: string, name: string) {
  return number(label, name, "as it is", "0.008", 100_000);
}

function select(label: string, name: string, of: readonly string[]) {
  return (
    <label key={name}>
      {label}{" "}
      <select name={name}>
        <option value="">as it is</option>
        {of.map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
    </label>
  );
}
