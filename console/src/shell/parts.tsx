import type { ComponentType } from "preact";
import { hashOf, type Route } from "./route";

interface Props {
  /** What the parts are of, for those who do not see them. */
  label: string;
  route: Route;
  /** By the name in the address: title and content. The first one is shown where none is named. */
  parts: Record<string, readonly [string, ComponentType]>;
}

/** A page of several parts, of which the address names one. */
export function Parts({ label, route, parts }: Props) {
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
