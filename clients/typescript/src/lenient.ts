/** Make the options of an event valid: telemetry must not fail its caller. Not used for payments. */

import { checkProp, isPlainObject, OPTIONS, PROP_TEXT_MAX, PROPS_MAX, type EventOptions, type PropValue } from "./items.js";

/** Log a topic once. */
export type Note = (topic: string, message: string) => void;

/** Return the options, with values converted, truncated or omitted where possible. Later checks refuse the rest. */
export function lenientOptions(given: unknown, note: Note): EventOptions {
  const options = given ?? {};
  if (!isPlainObject(options)) return options as EventOptions;
  const unknown = Object.keys(options).filter((name) => !OPTIONS.track.includes(name));
  for (const name of unknown) note(`option ${name}`, `${name.slice(0, 40)} is not an option of an event and is left out: use props`);
  const { user, props, id, at } = options;
  return { user: lenientUser(user, note), props: lenientProps(props, note), id, at } as EventOptions;
}

function lenientUser(user: unknown, note: Note): unknown {
  if (typeof user !== "bigint" && !Number.isFinite(user)) return user;
  note("user", "user is a number and is sent as text: pass a string");
  return String(user);
}

function lenientProps(props: unknown, note: Note): unknown {
  if (!isPlainObject(props)) return props;
  const kept: [string, PropValue][] = [];
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined) continue;
    if (kept.length === PROPS_MAX) {
      note("props", `props beyond ${PROPS_MAX} keys are left out`);
      break;
    }
    const text = typeof value === "string" ? truncated(name, value, note) : value;
    if (canSend(name, text, note)) kept.push([name, text as PropValue]);
  }
  return Object.fromEntries(kept);
}

function truncated(name: string, text: string, note: Note): string {
  if (text.length <= PROP_TEXT_MAX) return text;
  const characters = [...text.slice(0, 2 * PROP_TEXT_MAX + 1)]; // A character takes at most two units.
  if (characters.length <= PROP_TEXT_MAX) return text;
  note(`long ${name}`, `props.${name.slice(0, 40)} is truncated to ${PROP_TEXT_MAX} characters`);
  return characters.slice(0, PROP_TEXT_MAX).join("");
}

function canSend(name: string, value: unknown, note: Note): boolean {
  try {
    checkProp(name, value);
    return true;
  } catch (error) {
    note(`prop ${name}`, `props.${name.slice(0, 40)} is left out: ${(error as Error).message}`);
    return false;
  }
}
