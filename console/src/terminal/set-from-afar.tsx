/** What the service has set of a terminal, at the terminal and at its gateway, and whether it is in force. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { differences } from "../access/differences";
import { textOf } from "../access/listed";
import { ApiError } from "../api/client";
import type { LinkState, NodeSettings, Terminal } from "../api/types";
import { GatewayLink } from "../gateway/gateway-link";
import { EditLook } from "../settings/edit-look";
import { GatewaySettingForm } from "../settings/gateway-setting-form";
import { OneSetting } from "../settings/one-setting-form";
import { type Edit, editOf, keysOf, type Place, withSetting } from "../settings/setting-document";
import { useLive } from "../shell/context";
import { instant } from "../shell/dates";
import { Flaw } from "../shell/form";
import { operates, useMay, useMayOperateOwn } from "../shell/may-operate";
import { Failure, useRead } from "../shell/read";

const READ_MS = 15_000;
const NOT_FOUND = 404;
const BADGES = { waiting: "waiting", trial: "waiting", applied: "up", "rolled-back": "down", refused: "down" } as const;

export function SetFromAfar({ terminal }: { terminal: Terminal }) {
  const mayChange = useMayOperateOwn();
  return (
    <SettingsCard
      title="Set from afar"
      of={terminal.name}
      path={`v1/terminals/${terminal.node}/settings`}
      isShown={() => true}
      mayChange={mayChange}
    >
      {(_, reread) => mayChange && <OneSetting terminal={terminal} onChange={reread} />}
    </SettingsCard>
  );
}

interface AtGateway {
  gateway: number;
  /** The terminal on whose page it is shown; absent on the gateway's own. */
  terminal?: Terminal;
  /** What the gateway sends, as far as that has been reported. */
  sends: LinkState | undefined;
}

/** What is set of a gateway: what it sends to its terminals, or to one, and of its classes. */
export function SetAtGateway({ gateway, terminal, sends }: AtGateway) {
  const isOfWhole = useMay(({ tenant }) => !tenant);
  const mayChange = useMay(operates);
  const [isOpen, setOpen] = useState(false);
  if (!isOfWhole) return null;
  const path = `v1/gateways/${gateway}/settings`;
  return (
    <SettingsCard
      title={terminal ? <>Set at its <GatewayLink node={gateway} /></> : "Set from afar"}
      of={`gateway ${gateway}`}
      path={path}
      // Other terminals' are on their own pages.
      isShown={({ list, id }) => !terminal || list !== "terminals" || id === terminal.node}
      mayChange={mayChange}
    >
      {(onEdit) =>
        mayChange && (
          <>
            <p>
              <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
                Change a setting of gateway {gateway}
              </button>
            </p>
            {isOpen && <GatewaySettingForm gateway={gateway} path={path} terminal={terminal} sends={sends} onEdit={onEdit} />}
          </>
        )
      }
    </SettingsCard>
  );
}

interface CardProps {
  title: ComponentChildren;
  /** Whose settings they are. */
  of: string;
  path: string;
  isShown: (place: Place) => boolean;
  mayChange: boolean;
  /** Renders what changes the settings; it is given what to call with a change that was looked at, and after one. */
  children: (onEdit: (edit: Edit | undefined) => void, reread: () => void) => ComponentChildren;
}

function SettingsCard({ title, of, path, isShown, mayChange, children }: CardProps) {
  const { client } = useLive();
  const [turn, setTurn] = useState(0);
  const [edit, setEdit] = useState<Edit>();
  const [flaw, setFlaw] = useState<string>();
  const [said, setSaid] = useState<string>();
  const found = useRead(
    (signal) =>
      client.get<NodeSettings>(path, signal).catch((error: unknown) => {
        if (error instanceof ApiError && error.status === NOT_FOUND) return "nothing" as const;
        throw error;
      }),
    path,
    READ_MS,
    turn,
  );
  const set = found.value;
  const reread = () => setTurn((before) => before + 1);
  const attempt = async (work: () => Promise<void>) => {
    setFlaw(undefined);
    setSaid(undefined);
    setEdit(undefined);
    try {
      await work();
    } catch (error) {
      setFlaw(textOf(error));
    }
  };
  const takeAway = (place: Place, key: string) =>
    attempt(async () => setEdit(await editOf(client, path, (document) => withSetting(document, place, key))));
  const put = async ({ body, revision }: Edit) => {
    await attempt(async () => {
      await client.send("PUT", path, body, revision);
      setSaid(`${of} is sent this change.`);
    });
    reread();
  };
  const shown = set && set !== "nothing" ? settingsOf(set).filter(({ place }) => isShown(place)) : [];
  const id = `set-${path}`;
  return (
    <section class="card" aria-labelledby={id}>
      <h2 id={id}>
        {title} {set && set !== "nothing" && <span class={`badge ${BADGES[set.state]}`}>{set.state}</span>}
      </h2>
      <Failure of={found} />
      <Flaw>{flaw}</Flaw>
      <p role="status">{said}</p>
      {set && shown.length === 0 && <p>Nothing: all is as its own configuration has it.</p>}
      {set && set !== "nothing" && shown.length > 0 && (
        <>
          <p>
            Set {instant(Date.parse(set.set))}
            {set.reported && `, said of it ${instant(Date.parse(set.reported.received))}`}. Other than its own
            configuration:
          </p>
          <ul>
            {shown.map(({ place, key, value }) => {
              const what = `${SINGULAR[place.list]} ${place.id}: ${differences(undefined, { [key]: value })}`;
              return (
                <li key={`${place.list} ${place.id} ${key}`}>
                  {what}{" "}
                  {mayChange && (
                    <button type="button" aria-label={`Take away ${what}`} onClick={() => void takeAway(place, key)}>
                      Take away
                    </button>
                  )}
                </li>
              );
            })}
          </ul>
          {set.reported?.reason && <p class="flaw">{set.reported.reason}</p>}
        </>
      )}
      {children(setEdit, reread)}
      {edit && <EditLook of={of} edit={edit} set={() => void put(edit)} leave={() => setEdit(undefined)} />}
    </section>
  );
}

const SINGULAR = { classes: "class", paths: "path", terminals: "terminal" } as const;

/** The single settings of a document, in its order. */
function settingsOf(set: NodeSettings): { place: Place; key: string; value: unknown }[] {
  const lists = ["classes", "paths", "terminals"] as const;
  return lists.flatMap((list) =>
    (set[list] ?? []).flatMap((entry) => {
      const id = list === "terminals" ? Number(entry.node) : String(entry.name);
      return keysOf(entry, list).map(([key, value]) => ({ place: { list, id }, key, value }));
    }),
  );
}
