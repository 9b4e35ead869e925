/**
 * Draws all vehicles in one draw, on a canvas of their own above the map's: while they move, the map
 * below, which takes longer to draw, need not be drawn again. A fix costs the upload of some numbers;
 * the GPU interpolates each vehicle's place between its fixes. The layer draws nothing in the map
 * itself: it only learns the camera of each of the map's frames.
 *
 * Each vehicle is a point, and its shape is computed in the square around it: without a graphics card
 * the cost is per triangle, and an instance costs as much as a separate draw.
 */

import type { CustomLayerInterface, CustomRenderMethodInput, Map as MapLibreMap } from "maplibre-gl";
import { mercator, STRIDE, type Motion } from "./motion";
import { Pace } from "./pace";

const VERTEX = `#version 300 es
precision highp float;
layout(location = 0) in vec4 a_from;
layout(location = 1) in vec4 a_to;
layout(location = 2) in vec2 a_times;
layout(location = 3) in vec3 a_look;
uniform mat4 u_matrix;
uniform vec4 u_centre;
uniform float u_now;
uniform float u_bearing;
// Half of the sides of the squares, in pixels of the canvas: of all, and of what is selected.
uniform vec2 u_half;
uniform vec3 u_colours[8];
flat out vec3 v_colour;
flat out mat2 v_turn;
// Half of the side, the rim's part of it, and whether there is a heading.
flat out vec3 v_shape;
void main() {
  // High parts first: their difference is exact, and the low parts are not lost beside it.
  vec2 from = (a_from.xz - u_centre.xz) + (a_from.yw - u_centre.yw);
  vec2 to = (a_to.xz - u_centre.xz) + (a_to.yw - u_centre.yw);
  float span = a_times.y - a_times.x;
  float part = span > 0.0 ? clamp((u_now - a_times.x) / span, 0.0, 1.0) : 1.0;
  gl_Position = u_matrix * vec4(mix(from, to, part), 0, 1);
  bool selected = a_look.z > 0.5, headed = a_look.x >= 0.0;
  float turn = headed ? radians(a_look.x - u_bearing) : 0.0;
  v_turn = mat2(cos(turn), sin(turn), -sin(turn), cos(turn));
  float size = selected ? u_half.y : u_half.x;
  gl_PointSize = 2.0 * size;
  v_colour = u_colours[int(a_look.y)];
  v_shape = vec3(size, selected ? 0.3 : 0.17, headed);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
uniform vec3 u_rim;
flat in vec3 v_colour;
flat in mat2 v_turn;
flat in vec3 v_shape;
out vec4 colour;
void main() {
  // Turned until it points up; both shapes have a left side like the right one.
  vec2 place = v_turn * vec2(2.0 * gl_PointCoord.x - 1.0, 1.0 - 2.0 * gl_PointCoord.y);
  float x = abs(place.x), y = place.y;
  // How far it is to the edge, outside above 0: of an arrow's flank and of its notch; of a diamond.
  float arrow = max(0.921 * x + 0.39 * (y - 1.0), -0.486 * x - 0.874 * (y + 0.3));
  float diamond = 0.707 * (x + abs(y) - 0.75);
  float far = v_shape.z > 0.5 ? arrow : diamond;
  float inside = clamp(0.5 - far * v_shape.x, 0.0, 1.0);
  float rim = clamp((far + v_shape.y) * v_shape.x + 0.5, 0.0, 1.0);
  colour = vec4(mix(v_colour, u_rim, rim), 1) * inside;
}`;

/** Half the side of a square: where there is room, at least, and at least if selected. */
const SIZE_PX = 16;
const LEAST_PX = 5;
const SELECTED_PX = 18;
/** Vehicles are drawn again when the fastest has moved so far, and a fix is drawn within so many ms. */
const STEP_PX = 0.5;
const LATEST_MS = 200;
const FRAME_MS = 16;
/** How often to check whether a draw is done, and for how long at most. */
const DONE_EVERY_MS = 4;
const DONE_WITHIN_MS = 2_000;
/** Sizes of the attributes, in their order. */
const ATTRIBUTES = [4, 4, 2, 3];

export class VehiclesLayer implements CustomLayerInterface {
  readonly id = "vehicles";
  readonly type = "custom" as const;
  private readonly canvas = document.createElement("canvas");
  private readonly gl: WebGL2RenderingContext;
  private map: MapLibreMap | undefined;
  /** The camera of the map's last frame. */
  private matrix: ArrayLike<number> | undefined;
  private program: WebGLProgram | undefined;
  private readonly uniforms = new Map<string, WebGLUniformLocation | null>();
  private capacity = 0;
  private inSight = 1;
  private timer: number | undefined;
  private frame: number | undefined;
  private dueAt = Infinity;
  private readonly pace = new Pace();
  private earliestAt = 0;
  private done: WebGLSync | undefined;

  constructor(
    private readonly motion: Motion,
    /** Red, green and blue of each state, 0 to 1, and those of the rim. */
    private colours: { states: number[]; rim: number[] },
  ) {
    const gl = this.canvas.getContext("webgl2", { antialias: false, depth: false, stencil: false });
    if (!gl) throw new Error("the browser has no WebGL 2");
    this.gl = gl;
    this.canvas.className = "vehicles-canvas";
    this.canvas.ariaHidden = "true";
    // Otherwise the browser does not restore the context.
    this.canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    this.canvas.addEventListener("webglcontextrestored", () => this.prepare());
    this.prepare();
  }

  setColours(colours: { states: number[]; rim: number[] }): void {
    this.colours = colours;
    this.drawWithin(0);
  }

  /** Sets how many vehicles are in view: the more there are, the smaller they are drawn. */
  setInSight(count: number): void {
    this.inSight = Math.max(1, count);
  }

  /**
   * Draws again after `ms` at the latest, unless draws are slow. On a map of a whole region, vehicles
   * move by a pixel in a second: more frames than that would show the same picture. Slow draws come
   * less often, so that the rest of the page stays quick.
   */
  drawWithin(ms = LATEST_MS): void {
    const now = performance.now();
    const at = Math.max(now + ms, this.earliestAt);
    if (!this.matrix || at >= this.dueAt) return;
    this.drop();
    this.dueAt = at;
    const draw = () => {
      this.frame = requestAnimationFrame(() => this.draw());
    };
    if (at - now <= FRAME_MS) draw();
    else this.timer = window.setTimeout(draw, at - now);
  }

  onAdd(map: MapLibreMap): void {
    this.map = map;
    // Directly after the map's canvas, so below the labels.
    map.getCanvas().after(this.canvas);
  }

  /** Called in each frame of the map, so that the vehicles move with it. */
  render(_gl: WebGL2RenderingContext, { defaultProjectionData }: CustomRenderMethodInput): void {
    this.matrix = Float64Array.from(defaultProjectionData.mainMatrix);
    this.draw();
  }

  close(): void {
    this.drop();
    this.matrix = undefined;
    this.canvas.remove();
    // Browsers allow only a few contexts.
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
  }

  private prepare(): void {
    const { gl } = this;
    this.capacity = 0;
    this.uniforms.clear();
    this.program = linked(gl);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    let offset = 0;
    ATTRIBUTES.forEach((size, location) => {
      gl.enableVertexAttribArray(location);
      gl.vertexAttribPointer(location, size, gl.FLOAT, false, 4 * STRIDE, 4 * offset);
      offset += size;
    });
    gl.useProgram(this.program);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.clearColor(0, 0, 0, 0);
    this.drawWithin(0);
  }

  private drop(): void {
    clearTimeout(this.timer);
    if (this.frame !== undefined) cancelAnimationFrame(this.frame);
    this.frame = undefined;
    this.dueAt = Infinity;
  }

  private draw(): void {
    const { gl, map, matrix, motion } = this;
    this.drop();
    if (!map || !matrix) return;
    const now = performance.now();
    this.fit(map.getCanvas());
    gl.clear(gl.COLOR_BUFFER_BIT);
    if (motion.count === 0) return;
    this.upload();
    this.setUniforms(map, matrix, now);
    gl.drawArrays(gl.POINTS, 0, motion.count);
    this.time(now);
    const worldPx = 512 * 2 ** map.getZoom() * devicePixelRatio;
    const pixelsPerMs = motion.fastest(now) * worldPx;
    // If all vehicles are at rest, nothing changes until the next fix.
    if (pixelsPerMs > 0) this.drawWithin(Math.max(FRAME_MS, STEP_PX / pixelsPerMs));
  }

  private fit({ width, height }: HTMLCanvasElement): void {
    if (this.canvas.width === width && this.canvas.height === height) return;
    this.canvas.width = width;
    this.canvas.height = height;
    this.gl.viewport(0, 0, width, height);
  }

  /** Measures how long the draw that has begun takes, and delays the next one accordingly. */
  private time(began: number): void {
    const { gl } = this;
    this.earliestAt = began + this.pace.restMs;
    // Measure one draw at a time: a map that is dragged is drawn all the time.
    if (this.done) return;
    const done = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0) ?? undefined;
    this.done = done;
    if (!done) return;
    const look = () => {
      const now = performance.now();
      const isDone = gl.getSyncParameter(done, gl.SYNC_STATUS) === gl.SIGNALED;
      if (!isDone && now - began < DONE_WITHIN_MS) {
        window.setTimeout(look, DONE_EVERY_MS);
        return;
      }
      gl.deleteSync(done);
      this.done = undefined;
      this.pace.took(now - began);
      this.earliestAt = Math.max(this.earliestAt, now + this.pace.restMs);
    };
    window.setTimeout(look, DONE_EVERY_MS);
  }

  private upload(): void {
    const { gl, motion } = this;
    if (motion.data.length !== this.capacity) {
      gl.bufferData(gl.ARRAY_BUFFER, motion.data, gl.DYNAMIC_DRAW);
      this.capacity = motion.data.length;
    } else if (motion.changed) {
      const [from, to] = motion.changed;
      gl.bufferSubData(gl.ARRAY_BUFFER, 4 * STRIDE * from, motion.data, STRIDE * from, STRIDE * (to - from));
    }
    motion.changed = undefined;
  }

  private setUniforms(map: MapLibreMap, matrix: ArrayLike<number>, now: number): void {
    const { gl } = this;
    const at = (name: string) => this.uniform(name);
    const { lng, lat } = map.getCenter();
    const { x, y } = mercator(lng, lat);
    gl.uniformMatrix4fv(at("u_matrix"), false, moved(matrix, x, y));
    const [highX, highY] = [Math.fround(x), Math.fround(y)];
    gl.uniform4f(at("u_centre"), highX, x - highX, highY, y - highY);
    gl.uniform1f(at("u_now"), this.motion.time(now));
    gl.uniform1f(at("u_bearing"), map.getBearing());
    const { clientWidth, clientHeight } = map.getCanvas();
    const room = Math.sqrt((clientWidth * clientHeight) / this.inSight) / 2;
    const most = SIZE_PX * Math.min(1, Math.max(0.35, map.getZoom() / 11));
    const half = Math.min(most, Math.max(LEAST_PX, room));
    const ratio = map.getPixelRatio();
    gl.uniform2f(at("u_half"), ratio * half, ratio * Math.max(1.5 * half, SELECTED_PX));
    gl.uniform3fv(at("u_colours"), this.colours.states);
    gl.uniform3fv(at("u_rim"), this.colours.rim);
  }

  private uniform(name: string): WebGLUniformLocation | null {
    let found = this.uniforms.get(name);
    if (found === undefined && this.program) {
      found = this.gl.getUniformLocation(this.program, name);
      this.uniforms.set(name, found);
    }
    return found ?? null;
  }
}

/** Returns the matrix for places relative to a centre, computed in 64 bits so that nothing jitters. */
function moved(matrix: ArrayLike<number>, x: number, y: number): Float32Array {
  const made = Float32Array.from(matrix);
  const m = (index: number) => matrix[index] as number;
  for (let row = 0; row < 4; row++) {
    made[12 + row] = m(row) * x + m(4 + row) * y + m(12 + row);
  }
  return made;
}

function linked(gl: WebGL2RenderingContext): WebGLProgram {
  const program = gl.createProgram();
  for (const [type, source] of [
    [gl.VERTEX_SHADER, VERTEX],
    [gl.FRAGMENT_SHADER, FRAGMENT],
  ] as const) {
    const shader = gl.createShader(type);
    if (!shader) throw new Error("WebGL makes no shader");
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
    gl.deleteShader(shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) {
    throw new Error(`the shaders do not link: ${gl.getProgramInfoLog(program)}`);
  }
  return program;
}
