/**
 * All vehicles in one draw: a layer of the map's own WebGL context. A fix costs the upload of some
 * numbers; the GPU works out where each vehicle is between its fixes.
 *
 * Each is a point, and its shape is found in the square around it: without a graphics card the price
 * is by the triangle, and an instance costs as much as a draw of its own.
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
  if (inside == 0.0) discard;
  float rim = clamp((far + v_shape.y) * v_shape.x + 0.5, 0.0, 1.0);
  colour = vec4(mix(v_colour, u_rim, rim), 1) * inside;
}`;

/** Half of a square's side where there is room for it, at least, and of what is selected at least. */
const SIZE_PX = 16;
const LEAST_PX = 5;
const SELECTED_PX = 18;
/** A vehicle is drawn anew when it has moved so far; a fix within so many ms. */
const STEP_PX = 0.5;
const LATEST_MS = 200;
const FRAME_MS = 16;
/** So often it is looked whether a draw is done, and for so long at most. */
const DONE_EVERY_MS = 4;
const DONE_WITHIN_MS = 2_000;
/** Sizes of the attributes, in their order. */
const ATTRIBUTES = [4, 4, 2, 3];

export class VehiclesLayer implements CustomLayerInterface {
  readonly id = "vehicles";
  readonly type = "custom" as const;
  private map: MapLibreMap | undefined;
  private program: WebGLProgram | undefined;
  private buffer: WebGLBuffer | undefined;
  private array: WebGLVertexArrayObject | undefined;
  private capacity = 0;
  private inSight = 1;
  private timer: number | undefined;
  private dueAt = Infinity;
  private readonly pace = new Pace();
  private earliestAt = 0;
  private done: WebGLSync | undefined;

  constructor(
    private readonly motion: Motion,
    /** Red, green and blue of each state, 0 to 1, and those of the rim. */
    private colours: { states: number[]; rim: number[] },
  ) {}

  setColours(colours: { states: number[]; rim: number[] }): void {
    this.colours = colours;
    this.map?.triggerRepaint();
  }

  /** Says how many vehicles are in sight: many are drawn smaller. */
  setInSight(count: number): void {
    this.inSight = Math.max(1, count);
  }

  /**
   * Has the map drawn again after a time, if not before. Between fixes vehicles on a map of a whole
   * region move by a pixel in a second: more frames than their steps would be the same picture. Where
   * a draw takes long, there are fewer: the rest of the page is to be quick, too.
   */
  drawWithin(ms = LATEST_MS): void {
    const now = performance.now();
    const at = Math.max(now + ms, this.earliestAt);
    if (!this.map || at >= this.dueAt) return;
    clearTimeout(this.timer);
    this.dueAt = at;
    if (at - now <= FRAME_MS) this.map.triggerRepaint();
    else this.timer = window.setTimeout(() => this.map?.triggerRepaint(), at - now);
  }

  onAdd(map: MapLibreMap, gl: WebGL2RenderingContext): void {
    this.map = map;
    this.capacity = 0;
    this.program = linked(gl);
    this.buffer = gl.createBuffer();
    this.array = gl.createVertexArray();
    gl.bindVertexArray(this.array);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    let offset = 0;
    ATTRIBUTES.forEach((size, location) => {
      gl.enableVertexAttribArray(location);
      gl.vertexAttribPointer(location, size, gl.FLOAT, false, 4 * STRIDE, 4 * offset);
      offset += size;
    });
    gl.bindVertexArray(null);
  }

  onRemove(_map: MapLibreMap, gl: WebGL2RenderingContext): void {
    this.map = undefined;
    clearTimeout(this.timer);
    gl.deleteProgram(this.program ?? null);
    gl.deleteBuffer(this.buffer ?? null);
    gl.deleteVertexArray(this.array ?? null);
  }

  render(gl: WebGL2RenderingContext, input: CustomRenderMethodInput): void {
    const { map, program, array, motion } = this;
    clearTimeout(this.timer);
    this.dueAt = Infinity;
    if (!map || !program || !array || motion.count === 0) return;
    const now = performance.now();
    gl.useProgram(program);
    gl.bindVertexArray(array);
    this.upload(gl);
    this.setUniforms(gl, program, map, input, now);
    gl.disable(gl.DEPTH_TEST);
    gl.disable(gl.STENCIL_TEST);
    gl.drawArrays(gl.POINTS, 0, motion.count);
    this.time(gl, now);
    gl.bindVertexArray(null);
    const worldPx = 512 * 2 ** map.getZoom() * devicePixelRatio;
    const pixelsPerMs = motion.fastest(now) * worldPx;
    // At rest, until the next fix.
    if (pixelsPerMs > 0) this.drawWithin(Math.max(FRAME_MS, STEP_PX / pixelsPerMs));
  }

  /** Finds out how long the draw that has begun takes, and puts the next one off by that. */
  private time(gl: WebGL2RenderingContext, began: number): void {
    this.earliestAt = began + this.pace.restMs;
    // One at a time; a map that is dragged is drawn all the time.
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

  private upload(gl: WebGL2RenderingContext): void {
    const { motion } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer ?? null);
    if (motion.data.length !== this.capacity) {
      gl.bufferData(gl.ARRAY_BUFFER, motion.data, gl.DYNAMIC_DRAW);
      this.capacity = motion.data.length;
    } else if (motion.changed) {
      const [from, to] = motion.changed;
      gl.bufferSubData(gl.ARRAY_BUFFER, 4 * STRIDE * from, motion.data, STRIDE * from, STRIDE * (to - from));
    }
    motion.changed = undefined;
  }

  private setUniforms(
    gl: WebGL2RenderingContext,
    program: WebGLProgram,
    map: MapLibreMap,
    input: CustomRenderMethodInput,
    now: number,
  ): void {
    const at = (name: string) => gl.getUniformLocation(program, name);
    const { lng, lat } = map.getCenter();
    const { x, y } = mercator(lng, lat);
    const matrix = moved(input.defaultProjectionData.mainMatrix, x, y);
    gl.uniformMatrix4fv(at("u_matrix"), false, matrix);
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
}

/** The matrix for places relative to a centre: worked out in 64 bits, so that nothing trembles. */
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
