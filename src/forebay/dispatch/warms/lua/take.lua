#!lua flags=allow-oom
-- Takes entries out of a class, its flows in turn. ARGV: prefix, class, how many at the most, flows to pass over.
-- Answers flow, member, flow, member, ... A flow's score is its last turn; the lowest is next.
local prefix, class, wanted = ARGV[1], ARGV[2], tonumber(ARGV[3])
local flows = prefix .. 'flows:' .. class
local without, passed_over = {}, #ARGV - 3
for at = 4, #ARGV do without[ARGV[at]] = true end

local last = redis.call('ZRANGE', flows, -1, -1, 'WITHSCORES')
local turn = tonumber(last[2] or 0)
local taken, count = {}, 0
while count < wanted do
    local names = {}
    for _, name in ipairs(redis.call('ZRANGE', flows, 0, wanted - count + passed_over - 1)) do
        if not without[name] and #names < wanted - count then names[#names + 1] = name end
    end
    if #names == 0 then break end
    local share = math.max(1, math.floor((wanted - count) / #names))
    for _, name in ipairs(names) do
        local queue = prefix .. 'queue:' .. #class .. ':' .. class .. ':' .. name
        local popped = redis.call('ZPOPMIN', queue, share)
        for at = 1, #popped, 2 do
            taken[#taken + 1] = name
            taken[#taken + 1] = popped[at]
            count = count + 1
        end
        if redis.call('EXISTS', queue) == 1 then
            turn = turn + 1
            redis.call('ZADD', flows, turn, name)
        else
            redis.call('ZREM', flows, name)
        end
    end
end
return taken
