; The loops of the block interpreter, and its instructions that move elements.
;
; `loading.py` lays out the memory that this code works on. All fields are 8 bytes wide.
;
;   stage        loops over blocks, and four lists of instructions: run once, before, for each block, after
;   instruction  a function, its length in words, and its operands; the function is given the state and the instruction
;   state        of one thread: how many lanes the block has, where it begins, counters of the loops, slots
;   slot         the address of a block of elements: a register (memory of this thread), or tensor memory in place
;   register     holds whole groups of 64 lanes; lanes past the last one of a block are never seen
;
; A linear form stands in an instruction as: start, step of the lanes, how many terms, then (axis, step) for each.

%state = type { i64, i64, i64, ptr, ptr, [3 x i64], [16 x i64], [0 x ptr] }
; 0 lanes, 1 lanes rounded up, 2 first lane, 3 arguments, 4 registers, 6 counters, 7 slots

%stage = type {
  ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr,      ; 0-7 begin and end of the lists: once, before, for each block, after
  i64, i64, i64, i64,                          ; 8 outer axes, 9 inner axes, 10 lanes, 11 lanes of a block
  i64, i64, i64, i64,                          ; 12 lanes inside, 13 blocks, 14 slots, 15 bytes of the registers
  i64, i64, i64, ptr,                          ; 16 axis of pieces or -1, 17 length of a piece, 18 of all, 19 registers
  [16 x i64], [16 x i64], i64                  ; 20 outer extents, 21 inner extents, 22 rows if blocks are outermost, or 0
}

@RECORD = external global [4 x i64]

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

; ---------------------------------------------------------------------------------------------------- operands

define private i64 @word(ptr %i, i64 %n) alwaysinline {
  %at = getelementptr i64, ptr %i, i64 %n
  %x = load i64, ptr %at
  ret i64 %x
}

define private ptr @slot_at(ptr %s, ptr %i, i64 %n) alwaysinline {
  %k = call i64 @word(ptr %i, i64 %n)
  %at = getelementptr %state, ptr %s, i64 0, i32 7, i64 %k
  ret ptr %at
}

define private ptr @slot(ptr %s, ptr %i, i64 %n) alwaysinline {
  %at = call ptr @slot_at(ptr %s, ptr %i, i64 %n)
  %x = load ptr, ptr %at
  ret ptr %x
}

define private i64 @linear(ptr %s, ptr %f) noinline {
entry:
  %start = load i64, ptr %f
  %step = call i64 @word(ptr %f, i64 1)
  %count = call i64 @word(ptr %f, i64 2)
  %lane = call i64 @word(ptr %s, i64 2)
  %moved = mul i64 %step, %lane
  %first = add i64 %start, %moved
  br label %test
test:
  %n = phi i64 [ 0, %entry ], [ %n.next, %body ]
  %sum = phi i64 [ %first, %entry ], [ %sum.next, %body ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %body, label %leave
body:
  %twice = shl i64 %n, 1
  %axis.at = add i64 %twice, 3
  %axis = call i64 @word(ptr %f, i64 %axis.at)
  %step.at = add i64 %twice, 4
  %by = call i64 @word(ptr %f, i64 %step.at)
  %counter.at = getelementptr %state, ptr %s, i64 0, i32 6, i64 %axis
  %counter = load i64, ptr %counter.at
  %term = mul i64 %counter, %by
  %sum.next = add i64 %sum, %term
  %n.next = add i64 %n, 1
  br label %test
leave:
  ret i64 %sum
}

; Operands of what moves elements: 2 slot, 3 other slot, 4 offset of the register, 5 bytes of an element, 6 number of
; the memory among the arguments, 7 the linear form of the address in bytes.
define private ptr @memory(ptr %s, ptr %i) noinline {
  %arguments.at = getelementptr %state, ptr %s, i64 0, i32 3
  %arguments = load ptr, ptr %arguments.at
  %number = call i64 @word(ptr %i, i64 6)
  %argument = add i64 %number, 1
  %base.at = getelementptr ptr, ptr %arguments, i64 %argument
  %base = load ptr, ptr %base.at
  %form = getelementptr i64, ptr %i, i64 7
  %offset = call i64 @linear(ptr %s, ptr %form)
  %at = getelementptr i8, ptr %base, i64 %offset
  ret ptr %at
}

define private ptr @register(ptr %s, ptr %i) alwaysinline {
  %registers.at = getelementptr %state, ptr %s, i64 0, i32 4
  %registers = load ptr, ptr %registers.at
  %offset = call i64 @word(ptr %i, i64 4)
  %at = getelementptr i8, ptr %registers, i64 %offset
  ret ptr %at
}

define private i64 @block_bytes(ptr %s, ptr %i) alwaysinline {
  %n = load i64, ptr %s
  %item = call i64 @word(ptr %i, i64 5)
  %bytes = mul i64 %n, %item
  ret i64 %bytes
}

define private i1 @is_whole(ptr %s) alwaysinline {
  %n = load i64, ptr %s
  %m = call i64 @word(ptr %s, i64 1)
  %whole = icmp eq i64 %n, %m
  ret i1 %whole
}

; ---------------------------------------------------------------------------------------------------- whole blocks

; The slot is the memory itself, or a copy if the lanes are no whole groups.
define void @locate(ptr %s, ptr %i) {
  %at = call ptr @memory(ptr %s, ptr %i)
  %slot = call ptr @slot_at(ptr %s, ptr %i, i64 2)
  %whole = call i1 @is_whole(ptr %s)
  br i1 %whole, label %in_place, label %copy
in_place:
  store ptr %at, ptr %slot
  ret void
copy:
  %own = call ptr @register(ptr %s, ptr %i)
  %bytes = call i64 @block_bytes(ptr %s, ptr %i)
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %at, i64 %bytes, i1 false)
  store ptr %own, ptr %slot
  ret void
}

; The slot that the next instruction writes is the memory itself, if the lanes are whole groups.
define void @place(ptr %s, ptr %i) {
  %at = call ptr @memory(ptr %s, ptr %i)
  %slot = call ptr @slot_at(ptr %s, ptr %i, i64 2)
  %own = call ptr @register(ptr %s, ptr %i)
  %whole = call i1 @is_whole(ptr %s)
  %chosen = select i1 %whole, ptr %at, ptr %own
  store ptr %chosen, ptr %slot
  ret void
}

; What `place` did not place.
define void @put_back(ptr %s, ptr %i) {
  %whole = call i1 @is_whole(ptr %s)
  br i1 %whole, label %leave, label %copy
copy:
  %at = call ptr @memory(ptr %s, ptr %i)
  %own = call ptr @register(ptr %s, ptr %i)
  %bytes = call i64 @block_bytes(ptr %s, ptr %i)
  call void @llvm.memcpy.p0.p0.i64(ptr %at, ptr %own, i64 %bytes, i1 false)
  br label %leave
leave:
  ret void
}

define void @store(ptr %s, ptr %i) {
  %at = call ptr @memory(ptr %s, ptr %i)
  %from = call ptr @slot(ptr %s, ptr %i, i64 2)
  %bytes = call i64 @block_bytes(ptr %s, ptr %i)
  call void @llvm.memcpy.p0.p0.i64(ptr %at, ptr %from, i64 %bytes, i1 false)
  ret void
}

; -------------------------------------------------------------------------------------------------- positions

define void @iota(ptr %s, ptr %i) {
entry:
  %to = call ptr @slot(ptr %s, ptr %i, i64 2)
  %form = getelementptr i64, ptr %i, i64 7
  %first = call i64 @linear(ptr %s, ptr %form)
  %step = call i64 @word(ptr %form, i64 1)
  %m = call i64 @word(ptr %s, i64 1)
  %whole = and i64 %m, -8
  %some = icmp ne i64 %whole, 0
  %step.one = insertelement <8 x i64> poison, i64 %step, i64 0
  %steps = shufflevector <8 x i64> %step.one, <8 x i64> poison, <8 x i32> zeroinitializer
  %first.one = insertelement <8 x i64> poison, i64 %first, i64 0
  %firsts = shufflevector <8 x i64> %first.one, <8 x i64> poison, <8 x i32> zeroinitializer
  %lanes = mul <8 x i64> %steps, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
  %start = add <8 x i64> %firsts, %lanes
  %by = shl <8 x i64> %steps, splat (i64 3)
  br i1 %some, label %loop, label %rest
loop:
  %n = phi i64 [ 0, %entry ], [ %n.next, %loop ]
  %x = phi <8 x i64> [ %start, %entry ], [ %x.next, %loop ]
  %at = getelementptr i64, ptr %to, i64 %n
  store <8 x i64> %x, ptr %at, align 8
  %x.next = add <8 x i64> %x, %by
  %n.next = add i64 %n, 8
  %more = icmp ult i64 %n.next, %whole
  br i1 %more, label %loop, label %rest
rest:
  %k = phi i64 [ %whole, %entry ], [ %whole, %loop ], [ %k.next, %one ]
  %left = icmp ult i64 %k, %m
  br i1 %left, label %one, label %leave
one:
  %moved = mul i64 %k, %step
  %y = add i64 %first, %moved
  %k.at = getelementptr i64, ptr %to, i64 %k
  store i64 %y, ptr %k.at
  %k.next = add i64 %k, 1
  br label %rest
leave:
  ret void
}

; Whether positions (3) are inside of an extent (6), and a mask (5) holds, unless it is -1.
define void @check(ptr %s, ptr %i) {
entry:
  %to = call ptr @slot(ptr %s, ptr %i, i64 2)
  %from = call ptr @slot(ptr %s, ptr %i, i64 3)
  %extent = call i64 @word(ptr %i, i64 6)
  %extent.one = insertelement <16 x i64> poison, i64 %extent, i64 0
  %extents = shufflevector <16 x i64> %extent.one, <16 x i64> poison, <16 x i32> zeroinitializer
  %m = call i64 @word(ptr %s, i64 1)
  %masked = call i64 @word(ptr %i, i64 5)
  %some = icmp sge i64 %masked, 0
  %mask.at = select i1 %some, i64 5, i64 3
  %mask = call ptr @slot(ptr %s, ptr %i, i64 %mask.at)                   ; positions, if there is no mask: not looked at
  %every = xor i1 %some, true
  %every.one = insertelement <16 x i1> poison, i1 %every, i64 0
  %everywhere = shufflevector <16 x i1> %every.one, <16 x i1> poison, <16 x i32> zeroinitializer
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n.next, %loop ]
  %from.at = getelementptr i64, ptr %from, i64 %n
  %x = load <16 x i64>, ptr %from.at, align 8
  %inside = icmp ult <16 x i64> %x, %extents
  %hold.at = getelementptr i8, ptr %mask, i64 %n
  %hold = load <16 x i8>, ptr %hold.at, align 1
  %holds = icmp ne <16 x i8> %hold, zeroinitializer
  %allowed = or <16 x i1> %holds, %everywhere
  %both = and <16 x i1> %inside, %allowed
  %bytes = zext <16 x i1> %both to <16 x i8>
  %at = getelementptr i8, ptr %to, i64 %n
  store <16 x i8> %bytes, ptr %at, align 1
  %n.next = add i64 %n, 16
  %more = icmp ult i64 %n.next, %m
  br i1 %more, label %loop, label %leave
leave:
  ret void
}

; Indices (3) moved into an extent (5); one that is outside is reported with a number (6).
define void @clamp(ptr %s, ptr %i) {
entry:
  %to = call ptr @slot(ptr %s, ptr %i, i64 2)
  %from = call ptr @slot(ptr %s, ptr %i, i64 3)
  %extent = call i64 @word(ptr %i, i64 5)
  %last = sub i64 %extent, 1
  %lanes = load i64, ptr %s
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n.next, %next ]
  %from.at = getelementptr i64, ptr %from, i64 %n
  %x = load i64, ptr %from.at
  %inside = icmp ult i64 %x, %extent
  br i1 %inside, label %next, label %report
report:
  %number = call i64 @word(ptr %i, i64 6)
  %code = add i64 %number, 1
  %met = cmpxchg ptr @RECORD, i64 0, i64 %code monotonic monotonic
  %first = extractvalue { i64, i1 } %met, 1
  br i1 %first, label %note, label %next
note:
  %index.at = getelementptr i64, ptr @RECORD, i64 1
  store i64 %x, ptr %index.at, align 8
  %extent.at = getelementptr i64, ptr @RECORD, i64 2
  store i64 %extent, ptr %extent.at, align 8
  br label %next
next:
  %low = call i64 @llvm.smin.i64(i64 %x, i64 %last)
  %clamped = call i64 @llvm.smax.i64(i64 %low, i64 0)
  %at = getelementptr i64, ptr %to, i64 %n
  store i64 %clamped, ptr %at
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %lanes
  br i1 %more, label %loop, label %leave
leave:
  ret void
}

define private i64 @divided_down(i64 %x, i64 %y) alwaysinline {
  %quotient = sdiv i64 %x, %y
  %whole = mul i64 %quotient, %y
  %above = icmp sgt i64 %whole, %x
  %one = zext i1 %above to i64
  %result = sub i64 %quotient, %one
  ret i64 %result
}

; The lanes, from the first to before the last, at which a linear form is inside of an extent: 0 extent, 1 form.
define private { i64, i64 } @lanes_inside(ptr %s, ptr %g, i64 %low, i64 %high) {
  %extent = load i64, ptr %g
  %form = getelementptr i64, ptr %g, i64 1
  %x = call i64 @linear(ptr %s, ptr %form)
  %step = call i64 @word(ptr %form, i64 1)
  %last = sub i64 %extent, 1
  %still = icmp eq i64 %step, 0
  br i1 %still, label %same, label %moving
same:
  %inside = icmp ult i64 %x, %extent
  %end = select i1 %inside, i64 %high, i64 %low
  %one.1 = insertvalue { i64, i64 } poison, i64 %low, 0
  %one = insertvalue { i64, i64 } %one.1, i64 %end, 1
  ret { i64, i64 } %one
moving:
  %up = icmp sgt i64 %step, 0
  %down = sub i64 0, %step
  %size = select i1 %up, i64 %step, i64 %down
  %unit = icmp eq i64 %size, 1
  %mirrored = sub i64 %last, %x
  %from = select i1 %up, i64 %x, i64 %mirrored       ; grows by size, and has to be between 0 and last
  %missing = sub i64 0, %from
  %room = sub i64 %last, %from
  br i1 %unit, label %bounds, label %divide
divide:
  %missing.up = add i64 %missing, %size
  %missing.less = sub i64 %missing.up, 1
  %begin.divided = call i64 @divided_down(i64 %missing.less, i64 %size)
  %most.divided = call i64 @divided_down(i64 %room, i64 %size)
  br label %bounds
bounds:
  %begin = phi i64 [ %missing, %moving ], [ %begin.divided, %divide ]
  %most = phi i64 [ %room, %moving ], [ %most.divided, %divide ]
  %stop = add i64 %most, 1
  %low.new = call i64 @llvm.smax.i64(i64 %low, i64 %begin)
  %high.new = call i64 @llvm.smin.i64(i64 %high, i64 %stop)
  %low.kept = call i64 @llvm.smin.i64(i64 %low.new, i64 %high)
  %high.kept = call i64 @llvm.smax.i64(i64 %high.new, i64 %low.kept)
  %two.1 = insertvalue { i64, i64 } poison, i64 %low.kept, 0
  %two = insertvalue { i64, i64 } %two.1, i64 %high.kept, 1
  ret { i64, i64 } %two
}

; The same for all guards of an instruction. Behind the form of its address: how many guards, and for each how many words
; it has, its extent, and its form.
define private { i64, i64 } @all_inside(ptr %s, ptr %i, i64 %lanes) {
entry:
  %terms = call i64 @word(ptr %i, i64 9)
  %twice = shl i64 %terms, 1
  %count.at = add i64 %twice, 10
  %count = call i64 @word(ptr %i, i64 %count.at)
  %guard.at = add i64 %count.at, 1
  %guard.first = getelementptr i64, ptr %i, i64 %guard.at
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %body ]
  %guard = phi ptr [ %guard.first, %entry ], [ %guard.next, %body ]
  %low = phi i64 [ 0, %entry ], [ %low.next, %body ]
  %high = phi i64 [ %lanes, %entry ], [ %high.next, %body ]
  %some = icmp slt i64 %low, %high
  %left = icmp ult i64 %k, %count
  %more = and i1 %some, %left
  br i1 %more, label %body, label %leave
body:
  %length = load i64, ptr %guard
  %words = getelementptr i64, ptr %guard, i64 1
  %both = call { i64, i64 } @lanes_inside(ptr %s, ptr %words, i64 %low, i64 %high)
  %low.next = extractvalue { i64, i64 } %both, 0
  %high.next = extractvalue { i64, i64 } %both, 1
  %guard.next = getelementptr i64, ptr %guard, i64 %length
  %k.next = add i64 %k, 1
  br label %test
leave:
  %one = insertvalue { i64, i64 } poison, i64 %low, 0
  %two = insertvalue { i64, i64 } %one, i64 %high, 1
  ret { i64, i64 } %two
}

; Whether the first lane of a mask (4) holds, or there is none (-1).
define private i1 @first_holds(ptr %s, ptr %i) {
  %masked = call i64 @word(ptr %i, i64 4)
  %some = icmp sge i64 %masked, 0
  br i1 %some, label %look, label %leave
look:
  %mask = call ptr @slot(ptr %s, ptr %i, i64 4)
  %first = load i8, ptr %mask
  %holds = icmp ne i8 %first, 0
  ret i1 %holds
leave:
  ret i1 true
}

; The slot is memory at an offset (3), or a copy if the lanes are no whole groups, or zeros if a mask (4) does not hold.
define void @locate_offset(ptr %s, ptr %i) {
  %slot = call ptr @slot_at(ptr %s, ptr %i, i64 2)
  %item = call i64 @word(ptr %i, i64 5)
  %registers.at = getelementptr %state, ptr %s, i64 0, i32 4
  %registers = load ptr, ptr %registers.at
  %terms = call i64 @word(ptr %i, i64 9)
  %twice = shl i64 %terms, 1
  %register.at = add i64 %twice, 10
  %register = call i64 @word(ptr %i, i64 %register.at)
  %own = getelementptr i8, ptr %registers, i64 %register
  %bytes = call i64 @block_bytes(ptr %s, ptr %i)
  %holds = call i1 @first_holds(ptr %s, ptr %i)
  br i1 %holds, label %find, label %clear
find:
  %base = call ptr @memory(ptr %s, ptr %i)
  %offsets = call ptr @slot(ptr %s, ptr %i, i64 3)
  %offset = load i64, ptr %offsets
  %offset.bytes = mul i64 %offset, %item
  %at = getelementptr i8, ptr %base, i64 %offset.bytes
  %whole = call i1 @is_whole(ptr %s)
  br i1 %whole, label %in_place, label %copy
in_place:
  store ptr %at, ptr %slot
  ret void
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %at, i64 %bytes, i1 false)
  store ptr %own, ptr %slot
  ret void
clear:
  call void @llvm.memset.p0.i64(ptr %own, i8 0, i64 %bytes, i1 false)
  store ptr %own, ptr %slot
  ret void
}

; Runs an instruction on the first group of lanes: the values of the others are not needed. 2 the instruction.
define void @first_group(ptr %s, ptr %i) {
  %inner = getelementptr i64, ptr %i, i64 2
  %function = load ptr, ptr %inner
  %m.at = getelementptr i64, ptr %s, i64 1
  %n = load i64, ptr %s
  %m = load i64, ptr %m.at
  store i64 1, ptr %s
  store i64 64, ptr %m.at
  call void %function(ptr %s, ptr %inner)
  store i64 %n, ptr %s
  store i64 %m, ptr %m.at
  ret void
}

; Runs an instruction once for each row of the lanes: the lanes are those of two axes, and the instruction steps along
; both. 2 slot, 3 bytes of an element, 4 axis of the rows, 5 lanes of a row, 6 whether all rows are equal, 7 the
; instruction.
define void @by_rows(ptr %s, ptr %i) {
entry:
  %item = call i64 @word(ptr %i, i64 3)
  %axis = call i64 @word(ptr %i, i64 4)
  %length = call i64 @word(ptr %i, i64 5)
  %equal = call i64 @word(ptr %i, i64 6)
  %rows_differ = icmp eq i64 %equal, 0
  %inner = getelementptr i64, ptr %i, i64 7
  %function = load ptr, ptr %inner
  %slot = call ptr @slot_at(ptr %s, ptr %i, i64 2)
  %block = load ptr, ptr %slot
  %counter = getelementptr %state, ptr %s, i64 0, i32 6, i64 %axis
  %m.at = getelementptr i64, ptr %s, i64 1
  %first.at = getelementptr i64, ptr %s, i64 2
  %n = load i64, ptr %s
  %m = load i64, ptr %m.at
  %first = load i64, ptr %first.at
  %row.first = udiv i64 %first, %length
  %column.first = urem i64 %first, %length
  %period = call i64 @llvm.smin.i64(i64 %n, i64 %length)
  %stop = select i1 %rows_differ, i64 %n, i64 %period
  br label %loop
loop:
  %done = phi i64 [ 0, %entry ], [ %done.next, %loop ]
  %row = phi i64 [ %row.first, %entry ], [ %row.next, %loop ]
  %column = phi i64 [ %column.first, %entry ], [ 0, %loop ]
  %left = sub i64 %stop, %done
  %here = sub i64 %length, %column
  %some = call i64 @llvm.smin.i64(i64 %left, i64 %here)
  store i64 %row, ptr %counter
  store i64 %some, ptr %s
  store i64 %some, ptr %m.at
  store i64 %column, ptr %first.at
  %offset = mul i64 %done, %item
  %at = getelementptr i8, ptr %block, i64 %offset
  store ptr %at, ptr %slot
  call void %function(ptr %s, ptr %inner)
  %done.next = add i64 %done, %some
  %row.next = add i64 %row, 1
  %more = icmp slt i64 %done.next, %stop
  br i1 %more, label %loop, label %again
again:
  %have = phi i64 [ %stop, %loop ], [ %have.next, %double ]
  %missing = sub i64 %n, %have
  %any = icmp sgt i64 %missing, 0
  br i1 %any, label %double, label %leave
double:
  %copied = call i64 @llvm.smin.i64(i64 %missing, i64 %have)
  %have.bytes = mul i64 %have, %item
  %bytes = mul i64 %copied, %item
  %to = getelementptr i8, ptr %block, i64 %have.bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %block, i64 %bytes, i1 false)
  %have.next = add i64 %have, %copied
  br label %again
leave:
  store i64 %n, ptr %s
  store i64 %m, ptr %m.at
  store i64 %first, ptr %first.at
  store ptr %block, ptr %slot
  ret void
}

; ------------------------------------------------------------------------------------------------------- loops

define private void @run_list(ptr %s, ptr %begin, ptr %end) alwaysinline {
entry:
  br label %test
test:
  %i = phi ptr [ %begin, %entry ], [ %next, %body ]
  %more = icmp ult ptr %i, %end
  br i1 %more, label %body, label %leave
body:
  %function = load ptr, ptr %i
  %length = call i64 @word(ptr %i, i64 1)
  call void %function(ptr %s, ptr %i)
  %next = getelementptr i64, ptr %i, i64 %length
  br label %test
leave:
  ret void
}

define private void @run_part(ptr %s, ptr %stage, i64 %part) alwaysinline {
  %twice = shl i64 %part, 1
  %begin.at = getelementptr ptr, ptr %stage, i64 %twice
  %begin = load ptr, ptr %begin.at
  %end.at = getelementptr ptr, ptr %begin.at, i64 1
  %end = load ptr, ptr %end.at
  call void @run_list(ptr %s, ptr %begin, ptr %end)
  ret void
}

define private void @set_lanes(ptr %s, i64 %first, i64 %lanes) alwaysinline {
  store i64 %lanes, ptr %s
  %up = add i64 %lanes, 63
  %rounded = and i64 %up, -64
  %rounded.at = getelementptr i64, ptr %s, i64 1
  store i64 %rounded, ptr %rounded.at
  %first.at = getelementptr i64, ptr %s, i64 2
  store i64 %first, ptr %first.at
  ret void
}

; All blocks of the lanes, from the first to before `lanes`.
define private void @run_lanes(ptr %s, ptr %stage, i64 %lanes) alwaysinline {
entry:
  %size.at = getelementptr %stage, ptr %stage, i64 0, i32 11
  %size = load i64, ptr %size.at
  br label %test
test:
  %first = phi i64 [ 0, %entry ], [ %first.next, %body ]
  %more = icmp slt i64 %first, %lanes
  br i1 %more, label %body, label %leave
body:
  %left = sub i64 %lanes, %first
  %count = call i64 @llvm.smin.i64(i64 %left, i64 %size)
  call void @set_lanes(ptr %s, i64 %first, i64 %count)
  call void @run_part(ptr %s, ptr %stage, i64 2)
  %first.next = add i64 %first, %size
  br label %test
leave:
  ret void
}

; All values of the inner axes; the first ends before `bound`. Their counters stand behind those of the outer axes.
define private void @run_inner(ptr %s, ptr %stage, i64 %bound, i64 %lanes) {
entry:
  %outer.at = getelementptr %stage, ptr %stage, i64 0, i32 8
  %outer = load i64, ptr %outer.at
  %inner.at = getelementptr %stage, ptr %stage, i64 0, i32 9
  %inner = load i64, ptr %inner.at
  %inside.at = getelementptr %stage, ptr %stage, i64 0, i32 12
  %inside = load i64, ptr %inside.at
  %lanes_inside = icmp ne i64 %inside, 0
  %counters = getelementptr %state, ptr %s, i64 0, i32 6, i64 %outer
  br label %clear
clear:
  %c = phi i64 [ 0, %entry ], [ %c.next, %clear.body ]
  %c.more = icmp ult i64 %c, %inner
  br i1 %c.more, label %clear.body, label %work
clear.body:
  %c.at = getelementptr i64, ptr %counters, i64 %c
  store i64 0, ptr %c.at
  %c.next = add i64 %c, 1
  br label %clear
work:
  br i1 %lanes_inside, label %blocks, label %one
blocks:
  call void @run_lanes(ptr %s, ptr %stage, i64 %lanes)
  br label %advance
one:
  call void @run_part(ptr %s, ptr %stage, i64 2)
  br label %advance
advance:
  br label %carry
carry:
  %left = phi i64 [ %inner, %advance ], [ %axis, %wrap ]
  %any = icmp ne i64 %left, 0
  br i1 %any, label %step, label %leave
step:
  %axis = sub i64 %left, 1
  %at = getelementptr i64, ptr %counters, i64 %axis
  %value = load i64, ptr %at
  %value.next = add i64 %value, 1
  %extent.at = getelementptr %stage, ptr %stage, i64 0, i32 21, i64 %axis
  %extent.all = load i64, ptr %extent.at
  %is_first = icmp eq i64 %axis, 0
  %extent = select i1 %is_first, i64 %bound, i64 %extent.all
  %more = icmp slt i64 %value.next, %extent
  br i1 %more, label %again, label %wrap
again:
  store i64 %value.next, ptr %at
  br label %work
wrap:
  store i64 0, ptr %at
  br label %carry
leave:
  ret void
}

; A kernel: arguments are the stage, then the memories. An instance is a block, or a row whose lanes are inside.
define void @run_blocks(ptr %arguments, i64 %begin, i64 %end) {
  %stage = load ptr, ptr %arguments
  call void @run_stage(ptr %stage, ptr %arguments, i64 %begin, i64 %end)
  ret void
}

; A kernel: all stages of a program, one after the other. The first argument is their number, then the address and the
; number of instances of each.
define void @run_program(ptr %arguments, i64 %begin, i64 %end) {
entry:
  %list = load ptr, ptr %arguments
  %count = load i64, ptr %list
  br label %test
test:
  %n = phi i64 [ 0, %entry ], [ %n.next, %body ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %body, label %leave
body:
  %twice = shl i64 %n, 1
  %stage.number = add i64 %twice, 1
  %stage.at = getelementptr ptr, ptr %list, i64 %stage.number
  %stage = load ptr, ptr %stage.at
  %instances.number = add i64 %twice, 2
  %instances = call i64 @word(ptr %list, i64 %instances.number)
  call void @run_stage(ptr %stage, ptr %arguments, i64 0, i64 %instances)
  %n.next = add i64 %n, 1
  br label %test
leave:
  ret void
}

define private void @run_stage(ptr %stage, ptr %arguments, i64 %begin, i64 %end) noinline {
entry:
  %slots.at = getelementptr %stage, ptr %stage, i64 0, i32 14
  %slots = load i64, ptr %slots.at
  %words = add i64 %slots, 24
  %s = alloca i64, i64 %words, align 64
  %bytes.at = getelementptr %stage, ptr %stage, i64 0, i32 15
  %bytes = load i64, ptr %bytes.at
  %registers = alloca i8, i64 %bytes, align 64
  %arguments.at = getelementptr %state, ptr %s, i64 0, i32 3
  store ptr %arguments, ptr %arguments.at
  %registers.at = getelementptr %state, ptr %s, i64 0, i32 4
  store ptr %registers, ptr %registers.at
  %table.at = getelementptr %stage, ptr %stage, i64 0, i32 19
  %table = load ptr, ptr %table.at
  %outer.at = getelementptr %stage, ptr %stage, i64 0, i32 8
  %outer = load i64, ptr %outer.at
  %lanes.at = getelementptr %stage, ptr %stage, i64 0, i32 10
  %lanes.all = load i64, ptr %lanes.at
  %size.at = getelementptr %stage, ptr %stage, i64 0, i32 11
  %size = load i64, ptr %size.at
  %inside.at = getelementptr %stage, ptr %stage, i64 0, i32 12
  %inside = load i64, ptr %inside.at
  %lanes_inside = icmp ne i64 %inside, 0
  %blocks.at = getelementptr %stage, ptr %stage, i64 0, i32 13
  %blocks = load i64, ptr %blocks.at
  %pieces.at = getelementptr %stage, ptr %stage, i64 0, i32 16
  %pieces = load i64, ptr %pieces.at
  %in_pieces = icmp sge i64 %pieces, 0
  %piece.at = getelementptr %stage, ptr %stage, i64 0, i32 17
  %piece = load i64, ptr %piece.at
  %whole.at = getelementptr %stage, ptr %stage, i64 0, i32 18
  %whole = load i64, ptr %whole.at
  %first_inner.at = getelementptr %stage, ptr %stage, i64 0, i32 21
  %first_inner = load i64, ptr %first_inner.at
  %rows.at = getelementptr %stage, ptr %stage, i64 0, i32 22
  %rows = load i64, ptr %rows.at
  %by_block = icmp ne i64 %rows, 0
  %pieces.some = call i64 @llvm.smax.i64(i64 %pieces, i64 0)
  %piece.counter = getelementptr %state, ptr %s, i64 0, i32 6, i64 %pieces.some
  br label %slot.test
slot.test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %slot.body ]
  %k.more = icmp ult i64 %k, %slots
  br i1 %k.more, label %slot.body, label %once
slot.body:
  %offset.at = getelementptr i64, ptr %table, i64 %k
  %offset = load i64, ptr %offset.at
  %register = getelementptr i8, ptr %registers, i64 %offset
  %slot.at = getelementptr %state, ptr %s, i64 0, i32 7, i64 %k
  store ptr %register, ptr %slot.at
  %k.next = add i64 %k, 1
  br label %slot.test
once:
  %widest = call i64 @llvm.smin.i64(i64 %lanes.all, i64 %size)
  call void @set_lanes(ptr %s, i64 0, i64 %widest)
  call void @run_part(ptr %s, ptr %stage, i64 0)
  br label %test
test:
  %instance = phi i64 [ %begin, %once ], [ %instance.next, %done ]
  %more = icmp slt i64 %instance, %end
  br i1 %more, label %split, label %leave
split:
  %inner.count = select i1 %by_block, i64 %rows, i64 %blocks
  %inner.number = urem i64 %instance, %inner.count
  %outer.number = udiv i64 %instance, %inner.count
  %block = select i1 %by_block, i64 %outer.number, i64 %inner.number
  %row = select i1 %by_block, i64 %inner.number, i64 %outer.number
  %first = mul i64 %block, %size
  %left = sub i64 %lanes.all, %first
  %count = call i64 @llvm.smin.i64(i64 %left, i64 %size)
  br label %axis.test
axis.test:
  %axes = phi i64 [ %outer, %split ], [ %axis, %axis.body ]
  %rest = phi i64 [ %row, %split ], [ %rest.next, %axis.body ]
  %axes.more = icmp ne i64 %axes, 0
  br i1 %axes.more, label %axis.body, label %bounds
axis.body:
  %axis = sub i64 %axes, 1
  %extent.at = getelementptr %stage, ptr %stage, i64 0, i32 20, i64 %axis
  %extent = load i64, ptr %extent.at
  %value = urem i64 %rest, %extent
  %rest.next = udiv i64 %rest, %extent
  %value.at = getelementptr %state, ptr %s, i64 0, i32 6, i64 %axis
  store i64 %value, ptr %value.at
  br label %axis.test
bounds:
  %number = load i64, ptr %piece.counter
  %begun = mul i64 %number, %piece
  %remaining = sub i64 %whole, %begun
  %short = call i64 @llvm.smin.i64(i64 %remaining, i64 %piece)
  %lanes.short = select i1 %in_pieces, i64 %short, i64 %lanes.all
  %inner.short = select i1 %in_pieces, i64 %short, i64 %first_inner
  br i1 %lanes_inside, label %row.run, label %block.run
row.run:
  call void @set_lanes(ptr %s, i64 0, i64 1)
  call void @run_part(ptr %s, ptr %stage, i64 1)
  call void @run_inner(ptr %s, ptr %stage, i64 %first_inner, i64 %lanes.short)
  call void @set_lanes(ptr %s, i64 0, i64 1)
  call void @run_part(ptr %s, ptr %stage, i64 3)
  br label %done
block.run:
  call void @set_lanes(ptr %s, i64 %first, i64 %count)
  call void @run_part(ptr %s, ptr %stage, i64 1)
  call void @run_inner(ptr %s, ptr %stage, i64 %inner.short, i64 0)
  call void @run_part(ptr %s, ptr %stage, i64 3)
  br label %done
done:
  %instance.next = add i64 %instance, 1
  br label %test
leave:
  ret void
}
