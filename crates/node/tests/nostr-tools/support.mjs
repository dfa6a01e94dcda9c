// What every script here needs: a connection to the relay named on the command line, events, answers.
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { finalizeEvent, generateSecretKey, getPublicKey } from 'nostr-tools/pure'
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay'
import WebSocket from 'ws'

useWebSocketImplementation(WebSocket)

export const url = process.argv[2]
export const topic = 'kukuri:' + '01'.repeat(32)
// For whatever must happen at some time on a busy machine. The library's own limit would pass for an answer.
export const patience = 60_000

export async function connect(options = {}) {
  const relay = new Relay(url, options)
  relay.publishTimeout = relay.baseEoseTimeout = patience
  // Nothing here should earn a notice.
  relay.onnotice = notice => fail(new Error(`NOTICE: ${notice}`))
  await relay.connect()
  return relay
}

export function person() {
  const secret = generateSecretKey()
  const sign = template => finalizeEvent({ created_at: now(), tags: [], content: '', ...template }, secret)
  const note = (content, tags = []) => sign({ kind: 1, content, tags })
  return { key: getPublicKey(secret), sign, note }
}

export const now = () => Math.floor(Date.now() / 1000)
export const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds))

export async function refused(relay, event, message) {
  await assert.rejects(relay.publish(event), { message })
}

// A subscription whose events can be waited for, one by one.
export function subscribe(relay, filter) {
  const heard = []
  let wake = () => {}
  const subscription = { ended: false, closed: null }
  const tell = () => wake()
  subscription.inner = relay.subscribe([filter], {
    onevent: event => (heard.push(event), tell()),
    oninvalidevent: event => fail(new Error(`not what was asked for: ${JSON.stringify(event)}`)),
    oneose: () => ((subscription.ended = true), tell()),
    onclose: reason => ((subscription.closed = reason), tell()),
  })
  subscription.until = async (what, check) => {
    const timer = setTimeout(() => fail(new Error(`in vain: ${what}`)), patience)
    for (;;) {
      const woken = new Promise(resolve => (wake = resolve))
      if (check()) break
      await woken
    }
    clearTimeout(timer)
  }
  subscription.next = async () => {
    await subscription.until('an event', () => heard.length > 0)
    return heard.shift()
  }
  subscription.stored = async () => {
    await subscription.until('the end of stored events', () => subscription.ended || subscription.closed !== null)
    assert.equal(subscription.closed, null)
    return heard.splice(0)
  }
  return subscription
}

// The ids of what is stored, in the order they came.
export async function stored(relay, filter) {
  const subscription = subscribe(relay, filter)
  const events = await subscription.stored()
  subscription.inner.close()
  return events.map(event => event.id)
}

// Asks whoever started this script to do something with the relay, and waits until it is done.
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
export async function ask(what) {
  console.log(`please ${what}`)
  await answers.next()
}

// Runs a command of the operator. `--file` is followed by the content of the file. Returns what the command prints.
export async function operator(...words) {
  const file = words.indexOf('--file') + 1
  if (file > 0) {
    const path = join(mkdtempSync(join(tmpdir(), 'operator-')), 'file.md')
    writeFileSync(path, words[file])
    words[file] = path
  }
  console.log(`please run ${JSON.stringify(words)}`)
  const { value } = await answers.next()
  const { succeeded, output } = JSON.parse(value)
  assert.ok(succeeded, `${words.join(' ')}: ${output}`)
  return output
}

// Waits until a check holds.
export async function until(what, check) {
  const end = Date.now() + patience
  while (!(await check())) {
    if (Date.now() > end) fail(new Error(`in vain: ${what}`))
    await pause(50)
  }
}

export function fail(error) {
  console.error(error)
  process.exit(1)
}

export const leave = () => process.exit(0)
