/** The wire format of items, and the rules they must meet before they are queued. No I/O. */

import { isCurrency } from "./currencies.js";

export type PropValue = string | number | boolean | null;
export type Props = Readonly<Record<string, PropValue | undefined>>;
/** When something happened: a `Date`, an RFC 3339 text with an offset, or epoch milliseconds. */
export type Moment = Date | string | number;

export interface EventOptions {
  readonly user?: string | undefined;
  readonly props?: Props | undefined;
  /** Your own id, to count an event once even if it is sent from several places. */
  readonly id?: string | undefined;
  readonly at?: Moment | undefined;
}

export interface SignupOptions extends EventOptions {
  /** Who signed up: signups are counted by user. */
  readonly user: string;
}

export interface PaymentOptions extends EventOptions {
  /** Your id of the payment. The same id counts once, forever. */
  readonly id: string;
  /** In minor units (cents), an integer. */
  readonly amount: number;
  /** An ISO 4217 code in lowercase, such as `eur`. */
  readonly currency: string;
  /** False for volume that is processed for others. */
  readonly earned?: boolean | undefined;
}

export interface SubscriptionOptions {
  readonly id: string;
  /** Only `active` counts toward MRR. */
  readonly status: string;
  /** The monthly price in minor units, an integer. */
  readonly mrr: number;
  readonly currency: string;
  readonly at?: Date | string | undefined;
}

/** An item as it is sent, without `sent_at`. Callbacks receive this. */
export type SentItem = Readonly<Record<string, unknown>>;

/** Events and objects go to different paths, and are queued and held separately. */
export type Kind = "events" | "objects";

/** A valid item, serialized once: every retry sends the same text. */
export interface Item {
  readonly kind: Kind;
  readonly text: string;
  readonly bytes: number;
  readonly queuedAt: number;
  /** True for a behavioral event: it expires, and is dropped before payments and subscriptions. */
  readonly doesExpire: boolean;
}

/** The values added to an item when it is queued. */
export interface Queueing {
  readonly now: number;
  readonly newId: () => string;
  readonly isPublishable: boolean;
}

export const ITEM_BYTES_MAX = 120 * 1024;
/** `,"sent_at":"2026-11-16T00:00:00.000Z"`, added to events when they are sent. */
export const SENT_AT_BYTES = 37;
export const PROPS_MAX = 100;
export const PROP_TEXT_MAX = 1024;
const PAYMENT = "payment";
export const SIGNUP = "user_signup";
/** Any other name is a mistake, and its value would be lost. */
export const OPTIONS = {
  track: ["user", "props", "id", "at"],
  payment: ["id", "amount", "currency", "earned", "user", "props", "at"],
  subscription: ["id", "status", "mrr", "currency", "at"],
};
const LONE_SURROGATE = /[\ud800-\udfff]/u;
const RFC_3339 = /^(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|[+-](\d\d):[0-5]\d)$/;

export function eventItem(name: string, options: EventOptions, queueing: Queueing): Item {
  ensure(name !== PAYMENT, "payment is a reserved name: call payment()");
  checkOptions("track", options);
  return namedItem(name, options, queueing);
}

function namedItem(name: string, options: EventOptions, queueing: Queueing): Item {
  checkText("name", name, 1, 128);
  if (options.user != null) checkText("user", options.user, 0, 256);
  const isPayment = name === PAYMENT;
  if (isPayment) checkPayment(options.id, options.props, queueing);
  const props = options.props == null ? undefined : definedProps(options.props);
  if (options.id != null) checkText("id", options.id, 0, 256);
  const sent = {
    name,
    ...(options.user ? { user: options.user } : {}),
    id: options.id || queueing.newId(),
    at: eventTime(options.at ?? new Date(queueing.now)),
    ...(props ? { props } : {}),
  };
  return serialized("events", sent, queueing.now, !isPayment);
}

export function signupItem(options: SignupOptions, queueing: Queueing): Item {
  checkOptions("track", options);
  ensure(Boolean(options.user), "a signup needs a user: pass { user: \"…\" }");
  return eventItem(SIGNUP, options, queueing);
}

export function paymentItem(options: PaymentOptions, queueing: Queueing): Item {
  checkOptions("payment", options);
  const { amount, currency, earned, props, ...event } = options;
  const repeated = ["amount", "currency", "earned"].find((name) => Object.hasOwn(props ?? {}, name));
  ensure(repeated === undefined, `props must not hold ${repeated}: pass it as an option of payment()`);
  const all = { ...(props == null ? {} : definedProps(props)), amount, currency, ...(earned === undefined ? {} : { earned }) };
  return namedItem(PAYMENT, { ...event, props: all }, queueing);
}

export function subscriptionItem(options: SubscriptionOptions, queueing: Queueing): Item {
  checkOptions("subscription", options);
  ensure(!queueing.isPublishable, "a subscription needs a server key: use one that begins with sk_");
  checkText("id", options.id, 1, ITEM_BYTES_MAX);
  checkText("status", options.status, 0, ITEM_BYTES_MAX);
  checkMinorUnits("mrr", options.mrr);
  ensure(
    typeof options.currency === "string" && isCurrency(options.currency.toLowerCase()),
    "currency must be an ISO 4217 code such as eur",
  );
  ensure(typeof options.at !== "number", "at must be a Date or an RFC 3339 date-time with an offset");
  const sent = {
    type: "subscription",
    id: options.id,
    status: options.status,
    mrr: options.mrr,
    currency: options.currency,
    at: eventTime(options.at ?? new Date(queueing.now)),
  };
  return serialized("objects", sent, queueing.now, false);
}

/** Return the item as callbacks receive it. */
export function sentItem(item: Item): SentItem {
  return JSON.parse(item.text) as SentItem;
}

function ensure(isMet: boolean, message: string): asserts isMet {
  if (!isMet) throw new TypeError(message);
}

function checkOptions(call: keyof typeof OPTIONS, options: unknown): void {
  const expected = `an object with ${OPTIONS[call].join(", ")}`;
  ensure(typeof options === "object" && options !== null && !Array.isArray(options), `options must be ${expected}`);
  const unknown = Object.keys(options).find((name) => !OPTIONS[call].includes(name));
  ensure(unknown === undefined, `${unknown?.slice(0, 40)} is not an option: pass ${expected}`);
}

function checkText(field: string, text: unknown, min: number, max: number): asserts text is string {
  const expected = `${field} must be a string of ${min ? `${min} to` : "at most"} ${max} characters`;
  ensure(typeof text === "string" && text.length >= min && isWithin(text, max), expected);
  ensure(!LONE_SURROGATE.test(text), `${field} holds a lone surrogate, which is not a character`);
}

/** The service counts code points; some take two units of a JavaScript string. */
function isWithin(text: string, max: number): boolean {
  return text.length <= max || (text.length <= 2 * max && [...text].length <= max);
}

export function isPlainObject(value: unknown): value is Record<string, unknown> {
  return Object.prototype.toString.call(value) === "[object Object]";
}

function definedProps(props: unknown): Record<string, PropValue> {
  ensure(isPlainObject(props), "props must be a plain object");
  const defined = Object.entries(props as object).filter(([, value]) => value !== undefined);
  ensure(defined.length <= PROPS_MAX, `props must have at most ${PROPS_MAX} keys`);
  for (const [name, value] of defined) checkProp(name, value);
  return Object.fromEntries(defined) as Record<string, PropValue>;
}

export function checkProp(name: string, value: unknown): void {
  ensure(!LONE_SURROGATE.test(name), "a key of props holds a lone surrogate, which is not a character");
  const where = `props.${name.slice(0, 40)}`;
  if (typeof value === "string") return checkText(where, value, 0, PROP_TEXT_MAX);
  ensure(
    value === null || typeof value === "boolean" || Number.isFinite(value),
    `${where} must be a string, a finite number, a boolean or null`,
  );
}

function checkPayment(id: unknown, props: Props | undefined, queueing: Queueing): void {
  ensure(!queueing.isPublishable, "a payment needs a server key: use one that begins with sk_");
  checkText("the id of a payment", id, 1, 256);
  checkMinorUnits("amount", props?.["amount"]);
  const { currency, earned = null } = props ?? {};
  ensure(
    typeof currency === "string" && isCurrency(currency),
    "currency must be an ISO 4217 code in lowercase, such as eur",
  );
  ensure(earned === null || typeof earned === "boolean", "earned must be true or false");
}

function checkMinorUnits(field: string, amount: unknown): void {
  ensure(
    Number.isSafeInteger(amount) && (amount as number) >= 0,
    `${field} must be an integer of minor units from 0 to ${Number.MAX_SAFE_INTEGER}`,
  );
}

/** Return the time as it is sent. Text and numbers are sent unchanged. */
function eventTime(at: unknown): string | number {
  if (typeof at === "number") {
    ensure(Number.isSafeInteger(at), "at must be an integer of epoch milliseconds");
    return at;
  }
  const text = at instanceof Date && !Number.isNaN(at.getTime()) ? at.toISOString() : at;
  const expected = "at must be a valid Date, an RFC 3339 date-time with an offset, or epoch milliseconds";
  ensure(typeof text === "string" && isRfc3339(text), expected);
  return text;
}

function isRfc3339(text: string): boolean {
  const match = RFC_3339.exec(text);
  if (match === null) return false;
  const [year, month, day, hour, minute, second, offset] = match.slice(1).map((digits) => Number(digits ?? 0)) as [
    number, number, number, number, number, number, number,
  ];
  // Day 0 of the next month is the last day of this one. 2000 + year: a year below 100 would mean 19xx.
  const isDay = year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= new Date(2000 + year, month, 0).getDate();
  return isDay && hour <= 23 && minute <= 59 && second <= 60 && offset <= 23;
}

function serialized(kind: Kind, sent: SentItem, queuedAt: number, doesExpire: boolean): Item {
  const text = JSON.stringify(sent);
  const item = itemOf(kind, text, queuedAt, doesExpire);
  const bytes = item.bytes + (kind === "events" ? SENT_AT_BYTES : 0);
  ensure(bytes <= ITEM_BYTES_MAX, `an item takes at most ${ITEM_BYTES_MAX} bytes: this one takes ${bytes}`);
  return item;
}

/** Parse an item that was serialized before. */
export function itemOf(kind: Kind, text: string, queuedAt: number, doesExpire: boolean): Item {
  return { kind, text, bytes: new TextEncoder().encode(text).length, queuedAt, doesExpire };
}
