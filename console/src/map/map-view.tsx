/** The map and what is selected on it; loaded after the rest of the console. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Obstruction } from "../api/types";
import { Choice } from "../shell/choice";
import { useLive } from "../shell/context";
import { useKeptFocus } from "../shell/kept-focus";
import { hashOf } from "../shell/route";
import { FleetMap, type Place } from "./fleet-map";
import { SPANS } from "./history";
import { InView } from "./in-view";
import "./map.css";
import { Selected, titleOfSelected } from "./selected";

export default function MapView({ selected }: { selected: number | undefined }) {
  useKeptFocus();
  const live = useLive();
  const container = useRef<HTMLDivElement>(null);
  const map = useRef<FleetMap>(undefined);
  const [place, setPlace] = useState<Place>();
  const [hasGround, setHasGround] = useState(false);
  const [failure, setFailure] = useState<string>();
  const [span, setSpan] = useState(0);
  const [unread, setUnread] = useState<string>();
  const [obstructions, setObstructions] = useState<Obstruction[]>([]);

  useEffect(() => {
    if (!container.current) return undefined;
    const onSelect = (node: number | undefined) => {
      setPlace(undefined);
      location.hash = node === undefined ? hashOf("map") : hashOf("map", node);
    };
    try {
      map.current = new FleetMap(container.current, live, onSelect, setPlace, setHasGround, setUnread, setObstructions);
    } catch (error) {
      // Without WebGL, say so: the list beside the map works all the same.
      setFailure(error instanceof Error ? error.message : String(error));
      return undefined;
    }
    return () => map.current?.close();
  }, [live]);
  useEffect(() => map.current?.select(selected, SPANS[span]?.[1]), [selected, span, live]);

  const leave = () => {
    setPlace(undefined);
    if (selected !== undefined) location.hash = hashOf("map");
  };
  const onObstruction = (obstruction: Obstruction | undefined) => {
    leave();
    if (obstruction) setPlace({ obstruction });
  };
  const of = selected === undefined && place && "obstruction" in place ? place.obstruction.id : undefined;

  return (
    <section class="map" aria-label="Map of the vehicles" onKeyDown={({ key }) => void (key === "Escape" && leave())}>
      <div ref={container} class="canvas" />
      {failure !== undefined && <p role="alert">There is no map here: {failure}</p>}
      {/* The card itself changes twice a second: only what is selected is read out. */}
      <p class="hidden" role="status">
        {titleOfSelected(live.fleet, selected, place)}
      </p>
      <Selected node={selected} place={place} leave={leave}>
        <Choice label="Its way of" of={SPANS} value={span} onChange={setSpan} />
        {unread && <p class="flaw" role="alert">Its way cannot be read: {unread}</p>}
      </Selected>
      <InView obstructions={obstructions} selected={of} select={onObstruction} />
      {hasGround && (
        <p class="attribution">
          ©{" "}
          <a href="https://www.openstreetmap.org/copyright" target="_blank" rel="noopener noreferrer">
            OpenStreetMap contributors
          </a>
        </p>
      )}
      <Legend />
    </section>
  );
}

function Legend() {
  return (
    <ul class="legend" aria-label="Colours of the map">
      <li class="up">up</li>
      <li class="ahead">blockage within a minute</li>
      <li class="blocked">blocked</li>
      <li class="down">down</li>
      <li class="silent">silent</li>
    </ul>
  );
}
