#!lua flags=allow-oom
-- Offers entries no more. ARGV: prefix; then for each group: class, flow, how many, and so many members.
local prefix, at = ARGV[1], 2
while at <= #ARGV do
    local class, flow, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    local queue = prefix .. 'queue:' .. #class .. ':' .. class .. ':' .. flow
    at = at + 3
    local stop = at + count
    while at < stop do
        local piece = math.min(stop - at, 2000)
        redis.call('ZREM', queue, unpack(ARGV, at, at + piece - 1))
        at = at + piece
    end
    if redis.call('EXISTS', queue) == 0 then redis.call('ZREM', prefix .. 'flows:' .. class, flow) end
end
