// T-4, T-5, T-6, W-1: events of a topic are published, stored and live.
import assert from 'node:assert/strict'
import { connect, leave, person, refused, stored, subscribe, topic } from './support.mjs'

const alice = person()
const [writer, reader] = [await connect(), await connect()]
const first = alice.note('first', [['t', topic]])
const second = alice.note('second', [['t', topic]])
assert.equal(await writer.publish(first), '')
await refused(writer, alice.note('nowhere'), 'invalid: missing topic')

const all = subscribe(reader, { '#t': [topic] })
assert.deepEqual((await all.stored()).map(event => event.id), [first.id])
assert.equal(await writer.publish(second), '')
assert.equal((await all.next()).id, second.id)
assert.equal((await stored(reader, { '#t': [topic], kinds: [1], authors: [alice.key] })).length, 2)

const nothing = subscribe(reader, { kinds: [1] })
await nothing.until('it is closed', () => nothing.closed !== null)
assert.equal(nothing.closed, 'invalid: #t must name topics')
leave()
