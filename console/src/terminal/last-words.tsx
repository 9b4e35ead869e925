import type { Vehicle } from "../fleet/fleet";
import { GatewayLink } from "../gateway/gateway-link";
import { counted } from "../shell/counted";
import { bps, bytes, seconds, speed } from "../shell/format";
import { lastHeard } from "./heard";
import { instant } from "../shell/dates";

/** The last report of a terminal itself, shown as its last words once it is silent. */
export function LastWords({ vehicle, nowMs }: { vehicle: Vehicle; nowMs: number }) {
  const heard = lastHeard(vehicle, nowMs);
  const { position } = vehicle;
  return (
    <section class="card" aria-labelledby="last-words">
      <h2 id="last-words">{heard?.silent ? "Last words before silence" : "Heard"}</h2>
      {!heard && <p>Nothing has come of the terminal itself yet.</p>}
      {heard && (
        <>
          {heard.silent && <p>Nothing has come of the terminal itself for {seconds(nowMs - heard.receivedMs)}.</p>}
          <dl class="facts">
            <dt>Came</dt>
            <dd>{instant(heard.receivedMs)}</dd>
            <dt>Said at</dt>
            <dd>{instant(Date.parse(heard.state.time))}</dd>
            <dt>Return link</dt>
            <dd>
              {heard.state.state}, by path {heard.state.path}
            </dd>
            <dt>Waiting there</dt>
            <dd>
              {bytes(heard.state.backlogged_bytes)} in {counted(heard.state.streams, "stream")}
            </dd>
            <dt>Allowed rate</dt>
            <dd>
              {bps(heard.state.rate_bps)}, {heard.state.plan ? `by plan ${heard.state.plan}` : "by no plan"}
            </dd>
            <dt>Came by</dt>
            <dd>
              <GatewayLink node={heard.state.gateway} />
            </dd>
            {position && (
              <>
                <dt>Last position</dt>
                <dd>
                  {position.latitude.toFixed(5)}, {position.longitude.toFixed(5)} at {speed(position.speed_mps)}, {instant(position.timeMs)}
                </dd>
              </>
            )}
          </dl>
        </>
      )}
    </section>
  );
}
