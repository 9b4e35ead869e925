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
out vec2 v_at;
flat out vec3 v_look;
const vec2 CORNERS[4] = vec2[4](vec2(-1, -1), vec2(1, -1), vec2(-1, 1), vec2(1, 1));
void main() {
  // High parts first: their difference is exact, and the low parts are not lost beside it.
  vec2 from = (a_from.xz - u_centre.xz) + (a_from.yw - u_centre.yw);
  vec2 to = (a_to.xz - u_centre.xz) + (a_to.yw - u_centre.yw);
  float span = a_times.y - a_times.x;
  float part = span > 0.0 ? clamp((u_now - a_times.x) / span, 0.0, 1.0) : 1.0;
  vec4 place = u_matrix * vec4(mix(from, to, part), 0, 1);
  vec2 corner = CORNERS[gl_VertexID];
  float turn = a_look.x < 0.0 ? 0.0 : radians(a_look.x - u_bearing);
  mat2 rotation = mat2(cos(turn), -sin(turn), sin(turn), cos(turn));
  float size = u_size * (a_look.z > 0.5 ? 1.5 : 1.0);
  gl_Position = place + vec4(rotation * corner * size * u_pixel * place.w, 0, 0);
  v_at = corner;
  v_look = a_look;
}`;

const FRAGMENT = `#version 300 es
precision mediump float;
in vec2 v_at;
flat in vec3 v_look;
uniform vec3 u_colours[8];
uniform vec3 u_rim;
out vec4 colour;
// The distance from the shape's edge, below 0 inside: an arrow that points ahead, or a disc.
float edge() {
  if (v_look.x < 0.0) return length(v_at) - 0.6;
  float side = abs(v_at.x) * 0.894 + v_at.y * 0.447 - 0.38;
  float back = -v_at.y - 0.75 + 0.5 * (0.7 - abs(v_at.x));
  return max(side, back);
}
void main() {
  float distance = edge();
  if (distance > 0.14) discard;
  vec3 fill = u_colours[int(v_look.y)];
  float rim = v_look.z > 0.5 ? -0.12 : 0.0;
  colour = vec4(distance > rim ? u_rim : fill, 1);
}`;

const SIZE_PX = 13;
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

  constructor(
    private readonly motion: Motion,
    /** Red, green and blue of each state, 0 to 1, and those of the rim. */
    private colours: { states: number[]; rim: number[] },
  ) {}

  setColours(colours: { states: number[]; rim: number[] }): void {
    this.colours = colours;
    this.map?.triggerRepaint();
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
      gl.vertexAttribDivisor(location, 1);
      offset += size;
    });
    gl.bindVertexArray(null);
  }

  onRemove(_map: MapLibreMap, gl: WebGL2RenderingContext): void {
    gl.deleteProgram(this.program ?? null);
    gl.deleteBuffer(this.buffer ?? null);
    gl.deleteVertexArray(this.array ?? null);
  }

  render(gl: WebGL2RenderingContext, input: CustomRenderMethodInput): void {
    const { map, program, array, motion } = this;
    if (!map || !program || !array || motion.count === 0) return;
    const now = performance.now();
    gl.useProgram(program);
    gl.bindVertexArray(array);
    this.upload(gl);
    this.setUniforms(gl, program, map, input, now);
    gl.disable(gl.DEPTH_TEST);
    gl.disable(gl.STENCIL_TEST);
    gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, motion.count);
    gl.bindVertexArray(null);
    if (motion.movesUntil > now) map.triggerRepaint();
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
    gl.uniform1f(at("u_size"), SIZE_PX * Math.min(1, Math.max(0.35, map.getZoom() / 11)));
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
