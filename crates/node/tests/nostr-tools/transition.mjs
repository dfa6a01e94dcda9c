// From an open relay to one for members, and back, by commands (W-7, A-7). Nobody is locked out on the way.
import assert from 'node:assert/strict'
import { connect, leave, operator, person, pause, refused, stored, topic, until } from './support.mjs'

const http = process.argv[2].replace(/^ws/, 'http')
const [alice, bob] = [person(), person()]
const open = { '#t': ['kukuri:global'] }

// A connection that keeps what the relay tells it.
async function listener() {
  const relay = await connect()
  relay.notices = []
  relay.onnotice = notice => relay.notices.push(notice)
  relay.gone = new Promise(resolve => (relay.onclose = resolve))
  return relay
}

async function account(who) {
  const post = (path, body) =>
    fetch(http + path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })
  const { challenge } = await (await post('/v1/auth/challenge', { pubkey: who.key })).json()
  const answer = who.sign({ kind: 22242, tags: [['relay', process.argv[2]], ['challenge', challenge]] })
  assert.equal((await post('/v1/auth/verify', { auth_event_json: answer })).status, 200)
}

await account(alice)
const [silent, wise] = [await listener(), await listener()]
assert.equal(await silent.publish(bob.note('before', [['t', 'kukuri:global']])), '')
assert.match(await operator('auth', 'status'), /authentication +off: /)

// Scheduled: nothing changes yet.
const later = new Date(Date.now() + 3_600_000).toISOString()
assert.match(await operator('auth', 'require', '--at', later, '--grace', '6'), /scheduled: /)
assert.equal((await stored(silent, open)).length, 1)
assert.equal(JSON.parse(await operator('auth', 'status', '--json')).phase, 'scheduled')

// It begins: new clients have to authenticate, old ones are told, and go on.
const begun = Date.now()
await operator('auth', 'require', '--at', String(Math.floor(begun / 1000) + 1), '--grace', '6')
await until('both are told', () => silent.notices.length > 0 && wise.notices.length > 0)
assert.match(silent.notices[0], /^auth-required: .*authenticate within \d+ seconds/)
assert.equal((await stored(silent, open)).length, 1)
const fresh = await connect()
fresh.onnotice = () => {}
await refused(fresh, bob.note('new', [['t', 'kukuri:global']]), /^auth-required: /)
assert.equal(await wise.auth(async template => alice.sign(template)), '')

// The grace is over: who has not authenticated is closed, who has is served.
await silent.gone
assert.ok(Date.now() - begun >= 5_000, 'not before the grace is over')
assert.match(silent.notices.at(-1), /^auth-required: /)
assert.equal(await wise.publish(alice.note('after', [['t', 'kukuri:global']])), '')
assert.match(await operator('auth', 'status'), /authentication +required: /)

// The deadline was for older connections only: a newcomer can still authenticate.
const newcomer = await connect()
await refused(newcomer, bob.note('too early', [['t', 'kukuri:global']]), /^auth-required: /)
assert.equal(await newcomer.auth(async template => alice.sign(template)), '')
assert.equal((await stored(newcomer, open)).length, 2)
await pause(100)
assert.ok(newcomer.connected)

// And back.
assert.match(await operator('auth', 'off'), /authentication +off: /)
const anybody = await connect()
await until('it is off', async () => (await anybody.publish(bob.note('open', [['t', 'kukuri:global']])).catch(() => null)) === '')
leave()
