#!lua flags=allow-oom
-- Takes entries of one flow and one step out of a class: of the flow whose turn it is, and of the step of its first entry.
-- ARGV: prefix, class, how many at the most, how many entries to look at, flows to pass over.
-- Answers flow, member, flow, member, ... Entries of other steps stay where they are.
local prefix, class, wanted, looks = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local flows = prefix .. 'flows:' .. class
local without, passed_over = {}, #ARGV - 4
for at = 5, #ARGV do without[ARGV[at]] = true end

local answer = {}
while #answer == 0 do
    local name
    for _, found in ipairs(redis.call('ZRANGE', flows, 0, passed_over)) do
        if not name and not without[found] then name = found end
    end
    if not name then break end
    local queue = prefix .. 'queue:' .. #class .. ':' .. class .. ':' .. name
    local taken, step, from, page = {}, nil, 0, math.max(wanted, 100)
    while #taken < wanted and from < looks do
        local members = redis.call('ZRANGE', queue, from, from + page - 1)
        for _, member in ipairs(members) do
            local of = string.match(member, '^%d+:(%d+):')
            step = step or of
            if of == step and #taken < wanted then taken[#taken + 1] = member end
        end
        if #members < page then break end
        from = from + page
    end
    for at = 1, #taken, 2000 do redis.call('ZREM', queue, unpack(taken, at, math.min(at + 1999, #taken))) end
    for _, member in ipairs(taken) do
        answer[#answer + 1] = name
        answer[#answer + 1] = member
    end
    if redis.call('EXISTS', queue) == 1 then
        local last = redis.call('ZRANGE', flows, -1, -1, 'WITHSCORES')
        redis.call('ZADD', flows, tonumber(last[2] or 0) + 1, name)
    else
        redis.call('ZREM', flows, name)
    end
end
return answer
