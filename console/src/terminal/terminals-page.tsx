import { VehicleTable } from "../fleet/vehicle-table";
import { GatewaysPage } from "../gateway/gateways-page";
import { useLive, useTick } from "../shell/context";
import { useKeptFocus } from "../shell/kept-focus";
import { hashOf, type Route } from "../shell/route";
import TerminalView from "./terminal-view";

export default function TerminalsPage({ route }: { route: Route }) {
  useKeptFocus();
  // Loaded with the terminals: a part of its own would take more of the first script.
  if (route.page === "gateways") return <GatewaysPage route={route} />;
  if (route.of !== undefined) return <TerminalView key={route.of} route={route} />;
  const tag = route.query.get("tag") ?? undefined;
  return (
    <div class="page">
      <h1>Terminals</h1>
      <TagChoice tag={tag} />
      <VehicleTable wants={(one) => !tag || Boolean(one.tags?.includes(tag))} />
    </div>
  );
}

/** The choice of the tag whose terminals are listed. */
function TagChoice({ tag = "" }: { tag?: string | undefined }) {
  const live = useLive();
  useTick(5000);
  const tags = new Set([...live.fleet.terminals.values()].flatMap((one) => one.tags ?? []));
  // A link may name a tag that no terminal has any more.
  if (tag) tags.add(tag);
  if (tags.size === 0) return null;
  const choose = (event: Event) => {
    const chosen = (event.currentTarget as HTMLSelectElement).value;
    location.hash = hashOf("terminals", undefined, chosen ? { tag: chosen } : {});
  };
  return (
    <p class="filters">
      <label>
        With the tag{" "}
        <select value={tag} onChange={choose}>
          <option value="">any or none</option>
          {[...tags].sort().map((one) => (
            <option key={one} value={one}>
              {one}
            </option>
          ))}
        </select>
      </label>
    </p>
  );
}
