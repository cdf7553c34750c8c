#!lua
-- Offers entries. ARGV: prefix; then for each group: class, flow, how many, and so many pairs of place and member.
-- Without the flag allow-oom a server that has no memory left refuses the script as a whole.
local prefix, at = ARGV[1], 2
while at <= #ARGV do
    local class, flow, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    local flows = prefix .. 'flows:' .. class
    local queue = prefix .. 'queue:' .. #class .. ':' .. class .. ':' .. flow
    redis.call('SADD', prefix .. 'classes', class)
    -- A flow that comes anew stands behind those that wait: in front it could starve them by coming again and again.
    local last = redis.call('ZRANGE', flows, -1, -1, 'WITHSCORES')
    redis.call('ZADD', flows, 'NX', tonumber(last[2] or 0) + 1, flow)
    at = at + 3
    local stop = at + 2 * count
    while at < stop do
        local piece = math.min(stop - at, 2000)
        redis.call('ZADD', queue, 'NX', unpack(ARGV, at, at + piece - 1))
        at = at + piece
    end
end
