; The native part of the CPU device: worker threads, and the runner that carries a program through its tasks.
;
; `native.py` lays out the memory that this code works on, starts the threads and makes Python functions of the
; entries `call` and `call_timed`. The words in braces are filled in there. All fields are 8 bytes wide.
;
;   task     a kernel, its arguments, and a range of its instances, run by one thread
;   chunk    tasks that one thread runs one after the other; what threads take
;   lane     the chunks that one thread takes first: the same ones in each run, whose data may be in its cache
;   segment  chunks that may run in any order, or at once; the next segment starts when all of them are done
;   program  segments in order
;
; Progress is counted in chunks, not in threads. Who comes by takes a chunk by compare-exchange, from its own lane or
; else from another's. So a thread waits only for chunks that another one has taken: when the system has given a
; worker's core to another process, the rest of the work is done without it.
;
; The counters of a segment only grow: in run r, lane k has been taken when its counter is at r times its size. A
; straggler that still believes in an earlier run finds nothing to take, whatever has happened since.

%task = type { ptr, ptr, i64, i64 }                                      ; kernel, arguments, begin, end
%chunk = type { ptr, i64 }                                               ; first task, how many
%lane = type { i64, i64, ptr, [5 x i64] }                                ; taken, size, chunks
%segment = type { i64, [7 x i64], i64, i64, ptr, i64, [4 x i64] }        ; done, .., chunks, lanes, first lane, name
%worker = type { i64, i64, i64, ptr, i64, [3 x i64] }                    ; looking, core, thread id, team, number
%team = type {
  i64, [7 x i64],                                                        ; 0 lock: 0 free, 1 taken, 2 awaited
  i64, ptr, i64, [5 x i64],                                              ; 2 generation, 3 program, 4 sleepers
  i64, i64, i64, i64, ptr, i64, i64, i64                                 ; 6 stop, 7 threads, 8 spare core, 9 spins,
}                                                                        ; 10 workers, 11 wake-ups, 12 follow the caller
%patch = type { i64, ptr, i64 }                                          ; argument, where it goes, added to it
%program = type {
  i64, [7 x i64],                                                        ; 0 run
  i64, ptr, ptr, i64,                                                    ; 2 segments, 3 first, 4 team, 5 arguments
  i64, ptr, i64, i64, ptr                                                ; 6 patches, 7 first, 8 alone, 9 long, 10 times
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @sched_getcpu()
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @clock_gettime(i32, ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_SetString(ptr, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyList_SetSlice(ptr, i64, i64, ptr)
declare i32 @PyList_Append(ptr, ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
@none = external global i8
@type_error = external global ptr

@wrong_count = private constant [45 x i8] c"a program was given the wrong number of data\00"

; ---------------------------------------------------------------------------------------------------- tasks

define void @run_tasks(ptr %first, i64 %count) alwaysinline {
entry:
  %end = getelementptr %task, ptr %first, i64 %count
  br label %test
test:
  %task = phi ptr [ %first, %entry ], [ %next, %body ]
  %more = icmp ult ptr %task, %end
  br i1 %more, label %body, label %leave
body:
  %kernel = load ptr, ptr %task
  %arguments.at = getelementptr %task, ptr %task, i64 0, i32 1
  %arguments = load ptr, ptr %arguments.at
  %begin.at = getelementptr %task, ptr %task, i64 0, i32 2
  %begin = load i64, ptr %begin.at
  %stop.at = getelementptr %task, ptr %task, i64 0, i32 3
  %stop = load i64, ptr %stop.at
  call void %kernel(ptr %arguments, i64 %begin, i64 %stop)
  %next = getelementptr %task, ptr %task, i64 1
  br label %test
leave:
  ret void
}

; A kernel that copies: arguments source, target, bytes; an instance copies 64 KiB.
define void @copy_bytes(ptr %arguments, i64 %begin, i64 %end) {
  %source = load ptr, ptr %arguments
  %target.at = getelementptr i64, ptr %arguments, i64 1
  %target = load ptr, ptr %target.at
  %bytes.at = getelementptr i64, ptr %arguments, i64 2
  %bytes = load i64, ptr %bytes.at
  %from = shl i64 %begin, 16
  %to.full = shl i64 %end, 16
  %over = icmp ugt i64 %to.full, %bytes
  %to = select i1 %over, i64 %bytes, i64 %to.full
  %length = sub i64 %to, %from
  %source.here = getelementptr i8, ptr %source, i64 %from
  %target.here = getelementptr i8, ptr %target, i64 %from
  call void @llvm.memcpy.p0.p0.i64(ptr %target.here, ptr %source.here, i64 %length, i1 false)
  ret void
}

; A kernel that calls a function of somebody else (`runtime/external_work.py`): arguments are the number of tensors, how often it
; is called, the function, what it is given, the word for its status, a table of offsets (a row for each call), and for
; each tensor its address and the field where the function looks for it.
define void @call_outside(ptr %arguments, i64 %begin, i64 %end) {
entry:
  %count = load i64, ptr %arguments
  %calls.at = getelementptr i64, ptr %arguments, i64 1
  %calls = load i64, ptr %calls.at
  %function.at = getelementptr i64, ptr %arguments, i64 2
  %function = load ptr, ptr %function.at
  %given.at = getelementptr i64, ptr %arguments, i64 3
  %given = load ptr, ptr %given.at
  %status.at = getelementptr i64, ptr %arguments, i64 4
  %status = load ptr, ptr %status.at
  %offsets.at = getelementptr i64, ptr %arguments, i64 5
  %offsets = load ptr, ptr %offsets.at
  br label %again
again:
  %n = phi i64 [ 0, %entry ], [ %n.next, %went_well ]
  %more = icmp ult i64 %n, %calls
  br i1 %more, label %tensors, label %leave
tensors:
  %row = mul i64 %n, %count
  br label %next
next:
  %k = phi i64 [ 0, %tensors ], [ %k.next, %put ]
  %left = icmp ult i64 %k, %count
  br i1 %left, label %put, label %call
put:
  %twice = shl i64 %k, 1
  %address.slot = add i64 %twice, 6
  %address.at = getelementptr i64, ptr %arguments, i64 %address.slot
  %address = load ptr, ptr %address.at
  %field.slot = add i64 %twice, 7
  %field.at = getelementptr i64, ptr %arguments, i64 %field.slot
  %field = load ptr, ptr %field.at
  %offset.place = add i64 %row, %k
  %offset.at = getelementptr i64, ptr %offsets, i64 %offset.place
  %offset = load i64, ptr %offset.at
  %here = getelementptr i8, ptr %address, i64 %offset
  store ptr %here, ptr %field
  %k.next = add i64 %k, 1
  br label %next
call:
  %found = call i32 %function(ptr %given)
  %wrong = icmp ne i32 %found, 0
  br i1 %wrong, label %failed, label %went_well
went_well:
  %n.next = add i64 %n, 1
  br label %again
failed:
  %word = zext i32 %found to i64
  store i64 %word, ptr %status
  br label %leave
leave:
  ret void
}

define private i64 @monotonic() {
  %now = alloca [2 x i64]
  %_ = call i32 @clock_gettime(i32 1, ptr %now)
  %seconds = load i64, ptr %now
  %nanoseconds.at = getelementptr i64, ptr %now, i64 1
  %nanoseconds = load i64, ptr %nanoseconds.at
  %scaled = mul i64 %seconds, 1000000000
  %time = add i64 %scaled, %nanoseconds
  ret i64 %time
}

; Notes the time where no later one stands.
define private i64 @stamp(ptr %at) {
  %time = call i64 @monotonic()
  %before = atomicrmw umax ptr %at, i64 %time monotonic, align 8
  ret i64 %time
}

; -------------------------------------------------------------------------------------------------- waiting

; Waits until a counter has reached a value: spins, then yields, then sleeps for 50 us at a time. The thread it waits
; for may have lost its core for some milliseconds.
define private void @wait_for(ptr %counter, i64 %value, i64 %spins) {
entry:
  %pause = alloca [2 x i64]
  store i64 0, ptr %pause
  %nanoseconds = getelementptr i64, ptr %pause, i64 1
  store i64 50000, ptr %nanoseconds
  %patience = add i64 %spins, 100
  br label %test
test:
  %n = phi i64 [ 0, %entry ], [ %n.next, %again ]
  %now = load atomic i64, ptr %counter acquire, align 8
  %reached = icmp uge i64 %now, %value
  br i1 %reached, label %leave, label %wait
wait:
  %n.next = add i64 %n, 1
  %young = icmp ult i64 %n, %spins
  br i1 %young, label %spin, label %give_way
spin:
  call void asm sideeffect "{pause}", ""()
  br label %again
give_way:
  %impatient = icmp ugt i64 %n, %patience
  br i1 %impatient, label %sleep, label %yield
yield:
  %_ = call i32 @sched_yield()
  br label %again
sleep:
  %slept = call i64 (i64, ...) @syscall(i64 {nanosleep}, ptr %pause, ptr null)
  br label %again
again:
  br label %test
leave:
  ret void
}

; Pauses a number of times; `native.py` measures how long that takes.
define void @pauses(i64 %count) {
entry:
  br label %test
test:
  %n = phi i64 [ 0, %entry ], [ %n.next, %test ]
  call void asm sideeffect "{pause}", ""()
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %count
  br i1 %more, label %test, label %leave
leave:
  ret void
}

; ---------------------------------------------------------------------------------------------- taking chunks

; Takes a chunk of a segment for a thread, or gives null when none is left in this run.
define private ptr @take(ptr %segment, i64 %thread, i64 %run) {
entry:
  %lanes.at = getelementptr %segment, ptr %segment, i64 0, i32 3
  %lanes = load i64, ptr %lanes.at
  %first.at = getelementptr %segment, ptr %segment, i64 0, i32 4
  %first = load ptr, ptr %first.at
  %own = urem i64 %thread, %lanes
  br label %one_lane
one_lane:
  %tried = phi i64 [ 0, %entry ], [ %tried.next, %empty ]
  %position = phi i64 [ %own, %entry ], [ %position.next, %empty ]
  %lane = getelementptr %lane, ptr %first, i64 %position
  %size.at = getelementptr %lane, ptr %lane, i64 0, i32 1
  %size = load i64, ptr %size.at
  %limit = mul i64 %size, %run
  %seen.first = load atomic i64, ptr %lane monotonic, align 64
  br label %look
look:
  %seen = phi i64 [ %seen.first, %one_lane ], [ %seen.next, %try ]
  %left = icmp ult i64 %seen, %limit
  br i1 %left, label %try, label %empty
try:
  %wanted = add i64 %seen, 1
  %exchange = cmpxchg ptr %lane, i64 %seen, i64 %wanted acq_rel monotonic, align 64
  %seen.next = extractvalue { i64, i1 } %exchange, 0
  %taken = extractvalue { i64, i1 } %exchange, 1
  br i1 %taken, label %won, label %look
won:
  %start = sub i64 %limit, %size
  %number = sub i64 %seen, %start
  %chunks.at = getelementptr %lane, ptr %lane, i64 0, i32 2
  %chunks = load ptr, ptr %chunks.at
  %chunk = getelementptr %chunk, ptr %chunks, i64 %number
  ret ptr %chunk
empty:
  %tried.next = add i64 %tried, 1
  %position.up = add i64 %position, 1
  %wraps = icmp eq i64 %position.up, %lanes
  %position.next = select i1 %wraps, i64 0, i64 %position.up
  %all = icmp eq i64 %tried.next, %lanes
  br i1 %all, label %none, label %one_lane
none:
  ret ptr null
}

; Takes part in run `run` of a program: returns when all of its segments are done. With `times`, who has done a chunk
; notes when, before it counts as done. (If only the caller did, segments would seem to take no time that a worker did
; while the caller had lost its core.) Behind the times of the segments each thread has two for each segment: when it
; began its first chunk, and when it ended its last.
define private void @participate(ptr %program, i64 %thread, i64 %run, i64 %spins, ptr %times) {
entry:
  %count.at = getelementptr %program, ptr %program, i64 0, i32 2
  %count = load i64, ptr %count.at
  %segments.at = getelementptr %program, ptr %program, i64 0, i32 3
  %segments = load ptr, ptr %segments.at
  %timed = icmp ne ptr %times, null
  br label %next_segment
next_segment:
  %n = phi i64 [ 0, %entry ], [ %n.next, %settle ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %enter, label %leave
enter:
  %segment.at = getelementptr ptr, ptr %segments, i64 %n
  %segment = load ptr, ptr %segment.at
  %row = mul i64 %thread, %count
  %place = add i64 %row, %n
  %pair = shl i64 %place, 1
  %slot = add i64 %pair, %count
  %began.at = getelementptr i64, ptr %times, i64 %slot
  %ended.at = getelementptr i64, ptr %began.at, i64 1
  br label %work
work:
  %again = phi i1 [ false, %enter ], [ true, %did ]
  %chunk = call ptr @take(ptr %segment, i64 %thread, i64 %run)
  %got = icmp ne ptr %chunk, null
  br i1 %got, label %look, label %settle
look:
  %unseen = xor i1 %again, true
  %first.timed = and i1 %timed, %unseen
  br i1 %first.timed, label %begin, label %do
begin:
  %began = call i64 @monotonic()
  store i64 %began, ptr %began.at
  br label %do
do:
  %first = load ptr, ptr %chunk
  %tasks.at = getelementptr %chunk, ptr %chunk, i64 0, i32 1
  %tasks = load i64, ptr %tasks.at
  call void @run_tasks(ptr %first, i64 %tasks)
  br i1 %timed, label %note, label %did
note:
  %time.at = getelementptr i64, ptr %times, i64 %n
  %ended = call i64 @stamp(ptr %time.at)
  store i64 %ended, ptr %ended.at
  br label %did
did:
  %_ = atomicrmw add ptr %segment, i64 1 release, align 64
  br label %work
settle:
  %chunks.at = getelementptr %segment, ptr %segment, i64 0, i32 2
  %chunks = load i64, ptr %chunks.at
  %all = mul i64 %chunks, %run
  call void @wait_for(ptr %segment, i64 %all, i64 %spins)
  %n.next = add i64 %n, 1
  br label %next_segment
leave:
  ret void
}

; All segments on this thread, without a word to the others.
define private void @run_alone(ptr %program, ptr %times) alwaysinline {
entry:
  %count.at = getelementptr %program, ptr %program, i64 0, i32 2
  %count = load i64, ptr %count.at
  %segments.at = getelementptr %program, ptr %program, i64 0, i32 3
  %segments = load ptr, ptr %segments.at
  %timed = icmp ne ptr %times, null
  br label %next_segment
next_segment:
  %n = phi i64 [ 0, %entry ], [ %n.next, %finished ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %enter, label %leave
enter:
  %segment.at = getelementptr ptr, ptr %segments, i64 %n
  %segment = load ptr, ptr %segment.at
  %chunks.at = getelementptr %segment, ptr %segment, i64 0, i32 2
  %chunks = load i64, ptr %chunks.at
  %lane.at = getelementptr %segment, ptr %segment, i64 0, i32 4
  %lane = load ptr, ptr %lane.at
  %first.at = getelementptr %lane, ptr %lane, i64 0, i32 2
  %first = load ptr, ptr %first.at                                       ; the lanes' chunks lie one after the other
  br label %next_chunk
next_chunk:
  %k = phi i64 [ 0, %enter ], [ %k.next, %do ]
  %left = icmp ult i64 %k, %chunks
  br i1 %left, label %do, label %done
do:
  %chunk = getelementptr %chunk, ptr %first, i64 %k
  %task = load ptr, ptr %chunk
  %tasks.at = getelementptr %chunk, ptr %chunk, i64 0, i32 1
  %tasks = load i64, ptr %tasks.at
  call void @run_tasks(ptr %task, i64 %tasks)
  %k.next = add i64 %k, 1
  br label %next_chunk
done:
  br i1 %timed, label %note, label %finished
note:
  %time.at = getelementptr i64, ptr %times, i64 %n
  %_ = call i64 @stamp(ptr %time.at)
  br label %finished
finished:
  %n.next = add i64 %n, 1
  br label %next_segment
leave:
  ret void
}

; Where the times of a program's segments are noted, behind that of its start; null if they are not.
define private ptr @times_of(ptr %program) alwaysinline {
  %at = getelementptr %program, ptr %program, i64 0, i32 10
  %first = load ptr, ptr %at
  %timed = icmp ne ptr %first, null
  %second = getelementptr i64, ptr %first, i64 1
  %times = select i1 %timed, ptr %second, ptr null
  ret ptr %times
}

; -------------------------------------------------------------------------------------------------- workers

; What a worker thread does all its life: waits for the generation to change, then takes part in the program.
define ptr @work(ptr %worker) {
entry:
  %team.at = getelementptr %worker, ptr %worker, i64 0, i32 3
  %team = load ptr, ptr %team.at
  %number.at = getelementptr %worker, ptr %worker, i64 0, i32 4
  %number = load i64, ptr %number.at
  %id.at = getelementptr %worker, ptr %worker, i64 0, i32 2
  %id = call i64 (i64, ...) @syscall(i64 {gettid})
  store atomic i64 %id, ptr %id.at release, align 8
  %generation.at = getelementptr %team, ptr %team, i64 0, i32 2
  %program.at = getelementptr %team, ptr %team, i64 0, i32 3
  %sleepers.at = getelementptr %team, ptr %team, i64 0, i32 4
  %stop.at = getelementptr %team, ptr %team, i64 0, i32 6
  %spins.at = getelementptr %team, ptr %team, i64 0, i32 9
  %spins = load i64, ptr %spins.at
  br label %idle
idle:
  %known = phi i64 [ 0, %entry ], [ %generation, %participated ], [ %generation, %woken ]
  br label %look
look:
  %n = phi i64 [ 0, %idle ], [ %n.next, %spin ]
  %generation = load atomic i64, ptr %generation.at seq_cst, align 8
  %news = icmp ne i64 %generation, %known
  br i1 %news, label %join, label %wait
wait:
  %n.next = add i64 %n, 1
  %young = icmp ult i64 %n, %spins
  br i1 %young, label %spin, label %sleep
spin:
  call void asm sideeffect "{pause}", ""()
  br label %look
sleep:
  ; The kernel compares the generation once more before it puts us to sleep, so no wake-up is lost.
  %slept = atomicrmw add ptr %sleepers.at, i64 1 seq_cst, align 8
  %low = trunc i64 %generation to i32
  %woke = call i64 (i64, ...) @syscall(i64 {futex}, ptr %generation.at, i32 128, i32 %low, ptr null, ptr null, i32 0)
  %risen = atomicrmw sub ptr %sleepers.at, i64 1 seq_cst, align 8
  br label %woken
woken:
  br label %idle
join:
  %stop = load atomic i64, ptr %stop.at acquire, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %leave, label %announce
announce:
  store atomic i64 1, ptr %worker seq_cst, align 64                      ; from here on no program is freed
  %program = load atomic ptr, ptr %program.at seq_cst, align 8
  %some = icmp ne ptr %program, null
  br i1 %some, label %help, label %retreat
help:
  %run = load atomic i64, ptr %program acquire, align 64
  %times = call ptr @times_of(ptr %program)
  call void @participate(ptr %program, i64 %number, i64 %run, i64 %spins, ptr %times)
  br label %retreat
retreat:
  store atomic i64 0, ptr %worker seq_cst, align 64
  br label %participated
participated:
  br label %idle
leave:
  ret ptr null
}

; Wakes the workers that sleep.
define void @wake(ptr %team) {
  %generation.at = getelementptr %team, ptr %team, i64 0, i32 2
  %_ = atomicrmw add ptr %generation.at, i64 1 seq_cst, align 64
  %sleepers.at = getelementptr %team, ptr %team, i64 0, i32 4
  %sleepers = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %any = icmp ne i64 %sleepers, 0
  br i1 %any, label %call, label %leave
call:
  %wakes.at = getelementptr %team, ptr %team, i64 0, i32 11
  %wakes = load i64, ptr %wakes.at
  %wakes.next = add i64 %wakes, 1
  store i64 %wakes.next, ptr %wakes.at
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr %generation.at, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %leave
leave:
  ret void
}

; A worker that is pinned to the core where the caller runs moves to the core that is spare: the two would spend
; their turns waiting for each other.
define private void @make_room(ptr %team) {
entry:
  %spare.at = getelementptr %team, ptr %team, i64 0, i32 8
  %spare = load i64, ptr %spare.at
  %follow.at = getelementptr %team, ptr %team, i64 0, i32 12
  %follow = load i64, ptr %follow.at
  %pinned = icmp ne i64 %follow, 0
  br i1 %pinned, label %ask, label %leave
ask:
  %here.32 = call i32 @sched_getcpu()
  %here = zext i32 %here.32 to i64
  %as_before = icmp eq i64 %here, %spare
  br i1 %as_before, label %leave, label %search
search:
  %threads.at = getelementptr %team, ptr %team, i64 0, i32 7
  %threads = load i64, ptr %threads.at
  %workers.at = getelementptr %team, ptr %team, i64 0, i32 10
  %workers = load ptr, ptr %workers.at
  %count = sub i64 %threads, 1
  %mask = alloca [16 x i64]
  br label %test
test:
  %n = phi i64 [ 0, %search ], [ %n.next, %other ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %compare, label %leave
compare:
  %worker = getelementptr %worker, ptr %workers, i64 %n
  %core.at = getelementptr %worker, ptr %worker, i64 0, i32 1
  %core = load i64, ptr %core.at
  %in_our_way = icmp eq i64 %core, %here
  br i1 %in_our_way, label %move, label %other
other:
  %n.next = add i64 %n, 1
  br label %test
move:
  store [16 x i64] zeroinitializer, ptr %mask
  %word = lshr i64 %spare, 6
  %bit = and i64 %spare, 63
  %word.at = getelementptr i64, ptr %mask, i64 %word
  %value = shl i64 1, %bit
  store i64 %value, ptr %word.at
  %id.at = getelementptr %worker, ptr %worker, i64 0, i32 2
  %id = load atomic i64, ptr %id.at acquire, align 8
  %id.32 = trunc i64 %id to i32
  %_ = call i32 @sched_setaffinity(i32 %id.32, i64 128, ptr %mask)
  store i64 %spare, ptr %core.at
  store i64 %here, ptr %spare.at
  br label %leave
leave:
  ret void
}

; True when no worker can still be looking at a program that has been run before. Its memory may then be freed.
define i64 @retire(ptr %team, ptr %program) {
entry:
  %program.at = getelementptr %team, ptr %team, i64 0, i32 3
  %_ = cmpxchg ptr %program.at, ptr %program, ptr null seq_cst seq_cst, align 8
  %threads.at = getelementptr %team, ptr %team, i64 0, i32 7
  %threads = load i64, ptr %threads.at
  %workers.at = getelementptr %team, ptr %team, i64 0, i32 10
  %workers = load ptr, ptr %workers.at
  %count = sub i64 %threads, 1
  br label %test
test:
  %n = phi i64 [ 0, %entry ], [ %n.next, %look ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %look, label %quiet
look:
  %worker = getelementptr %worker, ptr %workers, i64 %n
  %looking = load atomic i64, ptr %worker seq_cst, align 64
  %n.next = add i64 %n, 1
  %outside = icmp eq i64 %looking, 0
  br i1 %outside, label %test, label %busy
busy:
  ret i64 0
quiet:
  ret i64 1
}

; ------------------------------------------------------------------------------------------- running a program

; The lock of the team: one program runs at a time, whoever calls. 1: taken, 2: taken and somebody sleeps for it.
define private void @lock(ptr %team) {
entry:
  br label %test
test:
  %old = atomicrmw xchg ptr %team, i64 2 acquire, align 64
  %free = icmp eq i64 %old, 0
  br i1 %free, label %leave, label %sleep
sleep:
  %_ = call i64 (i64, ...) @syscall(i64 {futex}, ptr %team, i32 128, i32 2, ptr null, ptr null, i32 0)
  br label %test
leave:
  ret void
}

define private void @unlock(ptr %team) alwaysinline {
  %old = atomicrmw xchg ptr %team, i64 0 release, align 64
  %awaited = icmp eq i64 %old, 2
  br i1 %awaited, label %wake, label %leave
wake:
  %_ = call i64 (i64, ...) @syscall(i64 {futex}, ptr %team, i32 129, i32 1, ptr null, ptr null, i32 0)
  br label %leave
leave:
  ret void
}

define private void @run_together(ptr %program, ptr %team, ptr %times) {
  call void @make_room(ptr %team)
  %before = load i64, ptr %program
  %run = add i64 %before, 1
  store atomic i64 %run, ptr %program release, align 64
  %program.at = getelementptr %team, ptr %team, i64 0, i32 3
  store atomic ptr %program, ptr %program.at seq_cst, align 8
  call void @wake(ptr %team)
  %spins.at = getelementptr %team, ptr %team, i64 0, i32 9
  %spins = load i64, ptr %spins.at
  call void @participate(ptr %program, i64 0, i64 %run, i64 %spins, ptr %times)
  ret void
}

; Puts the data of this call into the arguments of the kernels, and runs. Called with the lock.
define private void @patch_and_run(ptr %program, ptr %data) alwaysinline {
entry:
  %count.at = getelementptr %program, ptr %program, i64 0, i32 6
  %count = load i64, ptr %count.at
  %first.at = getelementptr %program, ptr %program, i64 0, i32 7
  %first = load ptr, ptr %first.at
  %end = getelementptr %patch, ptr %first, i64 %count
  br label %test
test:
  %patch = phi ptr [ %first, %entry ], [ %next, %body ]
  %more = icmp ult ptr %patch, %end
  br i1 %more, label %body, label %patched
body:
  %argument = load i64, ptr %patch
  %value.at = getelementptr i64, ptr %data, i64 %argument
  %value = load i64, ptr %value.at
  %target.at = getelementptr %patch, ptr %patch, i64 0, i32 1
  %target = load ptr, ptr %target.at
  %added.at = getelementptr %patch, ptr %patch, i64 0, i32 2
  %added = load i64, ptr %added.at
  %sum = add i64 %value, %added
  store i64 %sum, ptr %target
  %next = getelementptr %patch, ptr %patch, i64 1
  br label %test
patched:
  %times = call ptr @times_of(ptr %program)
  %timed = icmp ne ptr %times, null
  br i1 %timed, label %start, label %choose
start:
  %begun.at = getelementptr i64, ptr %times, i64 -1
  %_ = call i64 @stamp(ptr %begun.at)
  br label %choose
choose:
  %alone.at = getelementptr %program, ptr %program, i64 0, i32 8
  %alone = load i64, ptr %alone.at
  %is_alone = icmp ne i64 %alone, 0
  br i1 %is_alone, label %alone_way, label %together_way
alone_way:
  call void @run_alone(ptr %program, ptr %times)
  ret void
together_way:
  %team.at = getelementptr %program, ptr %program, i64 0, i32 4
  %team = load ptr, ptr %team.at
  call void @run_together(ptr %program, ptr %team, ptr %times)
  ret void
}

; Python: run(address, address, ...) -> None, with the address of the program as `self`. Long programs, and those
; that must wait for another thread's program, run without the interpreter's lock.
define ptr @call(ptr %self, ptr %args, i64 %given) {
entry:
  %program.number = call i64 @PyLong_AsLongLong(ptr %self)
  %program = inttoptr i64 %program.number to ptr
  %wanted.at = getelementptr %program, ptr %program, i64 0, i32 5
  %wanted = load i64, ptr %wanted.at
  %fits = icmp eq i64 %wanted, %given
  br i1 %fits, label %convert, label %misfit
misfit:
  %error = load ptr, ptr @type_error
  call void @PyErr_SetString(ptr %error, ptr @wrong_count)
  ret ptr null
convert:
  %data = alloca i64, i64 %given
  br label %test
test:
  %n = phi i64 [ 0, %convert ], [ %n.next, %store ]
  %more = icmp ult i64 %n, %given
  br i1 %more, label %body, label %go
body:
  %object.at = getelementptr ptr, ptr %args, i64 %n
  %object = load ptr, ptr %object.at
  %value = call i64 @PyLong_AsLongLong(ptr %object)
  %suspicious = icmp eq i64 %value, -1
  br i1 %suspicious, label %check, label %store
check:
  %raised = call ptr @PyErr_Occurred()
  %bad = icmp ne ptr %raised, null
  br i1 %bad, label %failed, label %store
failed:
  ret ptr null
store:
  %data.at = getelementptr i64, ptr %data, i64 %n
  store i64 %value, ptr %data.at
  %n.next = add i64 %n, 1
  br label %test
go:
  %team.at = getelementptr %program, ptr %program, i64 0, i32 4
  %team = load ptr, ptr %team.at
  %long.at = getelementptr %program, ptr %program, i64 0, i32 9
  %long = load i64, ptr %long.at
  %is_long = icmp ne i64 %long, 0
  br i1 %is_long, label %release, label %attempt
attempt:
  %exchange = cmpxchg ptr %team, i64 0, i64 1 acquire monotonic, align 64
  %got = extractvalue { i64, i1 } %exchange, 1
  br i1 %got, label %locked, label %release
release:
  %thread.released = call ptr @PyEval_SaveThread()
  %exchange.again = cmpxchg ptr %team, i64 0, i64 1 acquire monotonic, align 64
  %got.again = extractvalue { i64, i1 } %exchange.again, 1
  br i1 %got.again, label %locked, label %queue
queue:
  call void @lock(ptr %team)
  br label %locked
locked:
  %thread = phi ptr [ null, %attempt ], [ %thread.released, %release ], [ %thread.released, %queue ]
  call void @patch_and_run(ptr %program, ptr %data)
  call void @unlock(ptr %team)
  %released = icmp ne ptr %thread, null
  br i1 %released, label %retake, label %leave
retake:
  call void @PyEval_RestoreThread(ptr %thread)
  br label %leave
leave:
  call void @Py_IncRef(ptr @none)
  ret ptr @none
}

; --------------------------------------------------------------------------------------------------- buffers

; Making and dropping a buffer takes Python four times as long as a kernel of a few elements. `buffer_factory.py` finds out
; where in an object its slots are.

%mould = type { ptr, ptr, ptr, ptr, ptr }                                ; class, device, bytes, free blocks, fresh

@at_address = global i64 0
@at_blocks = global i64 0
@at_bytes = global i64 0
@at_device = global i64 0
@at_memory = global i64 0

define private void @set_slot(ptr %object, ptr %offset.at, ptr %value) alwaysinline {
  %offset = load i64, ptr %offset.at
  %slot = getelementptr i8, ptr %object, i64 %offset
  call void @Py_IncRef(ptr %value)
  store ptr %value, ptr %slot
  ret void
}

; Python: make() -> a buffer on a free block, with the address of a mould as `self`. When no block is free, `fresh` is
; called for an address.
define ptr @make(ptr %self, ptr %unused) {
entry:
  %number = call i64 @PyLong_AsLongLong(ptr %self)
  %mould = inttoptr i64 %number to ptr
  %blocks.at = getelementptr %mould, ptr %mould, i64 0, i32 3
  %blocks = load ptr, ptr %blocks.at
  %count = call i64 @PyList_Size(ptr %blocks)
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %pop, label %fresh
pop:
  %last = sub i64 %count, 1
  %free = call ptr @PyList_GetItem(ptr %blocks, i64 %last)
  call void @Py_IncRef(ptr %free)
  %cut = call i32 @PyList_SetSlice(ptr %blocks, i64 %last, i64 %count, ptr null)
  br label %build
fresh:
  %fresh.at = getelementptr %mould, ptr %mould, i64 0, i32 4
  %function = load ptr, ptr %fresh.at
  %new = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %function, ptr %blocks, ptr null)
  %made = icmp ne ptr %new, null
  br i1 %made, label %build, label %failed
build:
  %address = phi ptr [ %free, %pop ], [ %new, %fresh ]
  %class = load ptr, ptr %mould
  %object = call ptr @PyType_GenericAlloc(ptr %class, i64 0)
  %allocated = icmp ne ptr %object, null
  br i1 %allocated, label %set, label %lost
set:
  %device.at = getelementptr %mould, ptr %mould, i64 0, i32 1
  %device = load ptr, ptr %device.at
  call void @set_slot(ptr %object, ptr @at_device, ptr %device)
  %bytes.at = getelementptr %mould, ptr %mould, i64 0, i32 2
  %bytes = load ptr, ptr %bytes.at
  call void @set_slot(ptr %object, ptr @at_bytes, ptr %bytes)
  call void @set_slot(ptr %object, ptr @at_memory, ptr @none)
  call void @set_slot(ptr %object, ptr @at_blocks, ptr %blocks)
  call void @set_slot(ptr %object, ptr @at_address, ptr %address)
  call void @Py_DecRef(ptr %address)
  ret ptr %object
lost:
  call void @Py_DecRef(ptr %address)
  br label %failed
failed:
  ret ptr null
}

; Called by Python when a buffer dies: its block is free again.
define void @drop(ptr %object) {
entry:
  %offset = load i64, ptr @at_blocks
  %slot = getelementptr i8, ptr %object, i64 %offset
  %blocks = load ptr, ptr %slot
  %whole = icmp ne ptr %blocks, null
  br i1 %whole, label %give, label %leave
give:
  %address.offset = load i64, ptr @at_address
  %address.slot = getelementptr i8, ptr %object, i64 %address.offset
  %address = load ptr, ptr %address.slot
  %_ = call i32 @PyList_Append(ptr %blocks, ptr %address)
  br label %leave
leave:
  ret void
}
