import type { ComponentType } from "preact";
import { useKeptFocus } from "./kept-focus";
import { hashOf, type Route } from "./route";

interface Props {
  /** The name of the parts' navigation, for screen readers. */
  label: string;
  route: Route;
  /** Title and content by the name in the address. The first is shown if the address names none. */
  parts: Record<string, readonly [string, ComponentType]>;
}

/** A page of several parts; the address names the one to show. */
export function Parts({ label, route, parts }: Props) {
  useKeptFocus();
  const [first = ""] = Object.keys(parts);
  const shown = route.of !== undefined && Object.hasOwn(parts, route.of) ? route.of : first;
  const part = parts[shown];
  if (!part) return null;
  const [title, Part] = part;
  return (
    <div class="page">
      <nav aria-label={label}>
        {Object.entries(parts).map(([name, [text]]) => (
          <a key={name} href={hashOf(route.page, name)} aria-current={name === shown ? "page" : undefined}>
            {text}
          </a>
        ))}
      </nav>
      <h1>{title}</h1>
      <Part />
    </div>
  );
}
