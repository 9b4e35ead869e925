/**
 * All vehicles in one draw: a layer of the map's own WebGL context. A fix costs the upload of some
 * numbers; the GPU works out where each vehicle is between its fixes.
 */

import type { CustomLayerInterface, CustomRenderMethodInput, Map as MapLibreMap } from "maplibre-gl";
import { mercator, STRIDE, type Motion } from "./motion";

const VERTEX = `#version 300 es
precision highp float;
layout(location = 0) in vec4 a_from;
layout(location = 1) in vec4 a_to;
layout(location = 2) in vec2 a_times;
layout(location = 3) in vec3 a_look;
uniform mat4 u_matrix;
uniform vec4 u_centre;
uniform vec2 u_pixel;
uniform float u_now;
uniform float u_bearing;
uniform float u_size;
flat out vec3 v_colour;
uniform vec3 u_colours[8];
uniform vec3 u_rim;
// Left, tip, tail, right: an arrow that points ahead, and what has no heading. Twice, the rim first.
const vec2 ARROW[8] = vec2[8](
  vec2(-1.1, -1.08), vec2(0, 1.16), vec2(0, -0.54), vec2(1.1, -1.08),
  vec2(-0.83, -0.82), vec2(0, 0.85), vec2(0, -0.4), vec2(0.83, -0.82));
const vec2 DIAMOND[8] = vec2[8](
  vec2(-0.95, 0), vec2(0, 0.95), vec2(0, -0.95), vec2(0.95, 0),
  vec2(-0.7, 0), vec2(0, 0.7), vec2(0, -0.7), vec2(0.7, 0));
void main() {
  // High parts first: their difference is exact, and the low parts are not lost beside it.
  vec2 from = (a_from.xz - u_centre.xz) + (a_from.yw - u_centre.yw);
  vec2 to = (a_to.xz - u_centre.xz) + (a_to.yw - u_centre.yw);
  float span = a_times.y - a_times.x;
  float part = span > 0.0 ? clamp((u_now - a_times.x) / span, 0.0, 1.0) : 1.0;
  vec4 place = u_matrix * vec4(mix(from, to, part), 0, 1);
  bool inside = gl_VertexID > 3, selected = a_look.z > 0.5;
  vec2 corner = a_look.x < 0.0 ? DIAMOND[gl_VertexID] : ARROW[gl_VertexID];
  float turn = a_look.x < 0.0 ? 0.0 : radians(a_look.x - u_bearing);
  mat2 rotation = mat2(cos(turn), -sin(turn), sin(turn), cos(turn));
  float size = selected ? max(u_size * 1.5, 14.0) * (inside ? 0.75 : 1.0) : u_size;
  gl_Position = place + vec4(rotation * corner * size * u_pixel * place.w, 0, 0);
  v_colour = inside ? u_colours[int(a_look.y)] : u_rim;
}`;

// Drawn in software, most of the work is that for each pixel: there is none but to fill it.
const FRAGMENT = `#version 300 es
precision mediump float;
flat in vec3 v_colour;
out vec4 colour;
void main() { colour = vec4(v_colour, 1); }`;

/** Two triangles of the rim, two of what is inside it. */
const CORNERS = Uint8Array.of(0, 1, 2, 2, 1, 3, 4, 5, 6, 6, 5, 7);
/** Half of an arrow's length where there is room for it, and at least. */
const SIZE_PX = 13;
const LEAST_PX = 4;
/** A vehicle is drawn anew when it has moved so far; a fix within so many ms. */
const STEP_PX = 0.5;
const LATEST_MS = 200;
const FRAME_MS = 16;
/** Sizes of the attributes, in their order. */
const ATTRIBUTES = [4, 4, 2, 3];

export class VehiclesLayer implements CustomLayerInterface {
  readonly id = "vehicles";
  readonly type = "custom" as const;
  private map: MapLibreMap | undefined;
  private program: WebGLProgram | undefined;
  private buffer: WebGLBuffer | undefined;
  private array: WebGLVertexArrayObject | undefined;
  private corners: WebGLBuffer | undefined;
  private capacity = 0;
  private inSight = 1;
  private timer: number | undefined;
  private dueAt = Infinity;

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
   * region move by a pixel in a second: more frames than their steps would be the same picture.
   */
  drawWithin(ms = LATEST_MS): void {
    const now = performance.now();
    if (!this.map || now + ms >= this.dueAt) return;
    clearTimeout(this.timer);
    this.dueAt = now + ms;
    if (ms <= FRAME_MS) this.map.triggerRepaint();
    else this.timer = window.setTimeout(() => this.map?.triggerRepaint(), ms);
  }

  onAdd(map: MapLibreMap, gl: WebGL2RenderingContext): void {
    this.map = map;
    this.capacity = 0;
    this.program = linked(gl);
    this.buffer = gl.createBuffer();
    this.array = gl.createVertexArray();
    gl.bindVertexArray(this.array);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    this.corners = gl.createBuffer();
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.corners);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, CORNERS, gl.STATIC_DRAW);
    let offset = 0;
    ATTRIBUTES.forEach((size, location) => {
      gl.enableVertexAttribArray(location);
      gl.vertexAttribPointer(location, size, gl.FLOAT, false, 4 * STRIDE, 4 * offset);
      gl.vertexAttribDivisor(location, 1);
      offset += size;
    });
    gl.bindVertexArray(null);
  }

  onRemove(_map: MapLibreMap, gl: WebGL2RenderingContext): void {
    this.map = undefined;
    clearTimeout(this.timer);
    gl.deleteProgram(this.program ?? null);
    gl.deleteBuffer(this.buffer ?? null);
    gl.deleteBuffer(this.corners ?? null);
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
    gl.drawElementsInstanced(gl.TRIANGLES, CORNERS.length, gl.UNSIGNED_BYTE, 0, motion.count);
    gl.bindVertexArray(null);
    const worldPx = 512 * 2 ** map.getZoom() * devicePixelRatio;
    const pixelsPerMs = motion.fastest(now) * worldPx;
    // At rest, until the next fix.
    if (pixelsPerMs > 0) this.drawWithin(Math.max(FRAME_MS, STEP_PX / pixelsPerMs));
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
    const canvas = map.getCanvas();
    gl.uniform2f(at("u_pixel"), 2 / canvas.clientWidth, 2 / canvas.clientHeight);
    gl.uniform1f(at("u_now"), this.motion.time(now));
    gl.uniform1f(at("u_bearing"), map.getBearing());
    const room = Math.sqrt((canvas.clientWidth * canvas.clientHeight) / this.inSight) / 2;
    const most = SIZE_PX * Math.min(1, Math.max(0.35, map.getZoom() / 11));
    gl.uniform1f(at("u_size"), Math.min(most, Math.max(LEAST_PX, room)));
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
