; Instructions that move elements of {bits} bits one by one (see `blocks.ll`).

define private void @fill_{bits}(ptr %to, i{bits} %x, i64 %m) {
entry:
  %whole = and i64 %m, -64
  %some = icmp ne i64 %whole, 0
  %one = insertelement <64 x i{bits}> poison, i{bits} %x, i64 0
  %all = shufflevector <64 x i{bits}> %one, <64 x i{bits}> poison, <64 x i32> zeroinitializer
  br i1 %some, label %loop, label %rest
loop:
  %n = phi i64 [ 0, %entry ], [ %n.next, %loop ]
  %at = getelementptr i{bits}, ptr %to, i64 %n
  store <64 x i{bits}> %all, ptr %at, align {bytes}
  %n.next = add i64 %n, 64
  %more = icmp ult i64 %n.next, %whole
  br i1 %more, label %loop, label %rest
rest:
  %k = phi i64 [ %whole, %entry ], [ %whole, %loop ], [ %k.next, %single ]
  %left = icmp ult i64 %k, %m
  br i1 %left, label %single, label %leave
single:
  %k.at = getelementptr i{bits}, ptr %to, i64 %k
  store i{bits} %x, ptr %k.at
  %k.next = add i64 %k, 1
  br label %rest
leave:
  ret void
}

; A number (3) in all lanes.
define void @constant_{bits}(ptr %s, ptr %i) {
  %to = call ptr @slot(ptr %s, ptr %i, i64 2)
  %x.at = getelementptr i64, ptr %i, i64 3
  %x = load i{bits}, ptr %x.at                                           ; the low bytes of the word
  %m = call i64 @word(ptr %s, i64 1)
  call void @fill_{bits}(ptr %to, i{bits} %x, i64 %m)
  ret void
}

; One element of memory in all lanes.
define void @splat_{bits}(ptr %s, ptr %i) {
  %to = call ptr @slot(ptr %s, ptr %i, i64 2)
  %from = call ptr @memory(ptr %s, ptr %i)
  %x = load i{bits}, ptr %from, align {bytes}
  %m = call i64 @word(ptr %s, i64 1)
  call void @fill_{bits}(ptr %to, i{bits} %x, i64 %m)
  ret void
}

define private void @copy_lanes_{bits}(ptr noalias %to, i64 %to.step, ptr noalias %from, i64 %from.step, i64 %first, i64 %last) alwaysinline {
entry:
  %some = icmp slt i64 %first, %last
  br i1 %some, label %loop, label %leave
loop:
  %n = phi i64 [ %first, %entry ], [ %n.next, %loop ]
  %from.offset = mul i64 %n, %from.step
  %from.at = getelementptr i8, ptr %from, i64 %from.offset
  %x = load i{bits}, ptr %from.at, align {bytes}
  %to.offset = mul i64 %n, %to.step
  %to.at = getelementptr i8, ptr %to, i64 %to.offset
  store i{bits} %x, ptr %to.at, align {bytes}
  %n.next = add i64 %n, 1
  %more = icmp slt i64 %n.next, %last
  br i1 %more, label %loop, label %leave
leave:
  ret void
}

define void @strided_{bits}(ptr %s, ptr %i) {
  %to = call ptr @slot(ptr %s, ptr %i, i64 2)
  %from = call ptr @memory(ptr %s, ptr %i)
  %step = call i64 @word(ptr %i, i64 8)
  %n = load i64, ptr %s
  call void @copy_lanes_{bits}(ptr %to, i64 {bytes}, ptr %from, i64 %step, i64 0, i64 %n)
  ret void
}

define void @store_strided_{bits}(ptr %s, ptr %i) {
  %from = call ptr @slot(ptr %s, ptr %i, i64 2)
  %to = call ptr @memory(ptr %s, ptr %i)
  %step = call i64 @word(ptr %i, i64 8)
  %n = load i64, ptr %s
  call void @copy_lanes_{bits}(ptr %to, i64 %step, ptr %from, i64 {bytes}, i64 0, i64 %n)
  ret void
}

define private void @copy_some_{bits}(ptr %s, ptr %i, ptr %to, i64 %low, i64 %high) {
  %from = call ptr @memory(ptr %s, ptr %i)
  %step = call i64 @word(ptr %i, i64 8)
  %dense = icmp eq i64 %step, {bytes}
  br i1 %dense, label %whole, label %each
whole:
  %to.low = getelementptr i{bits}, ptr %to, i64 %low
  %from.low = getelementptr i{bits}, ptr %from, i64 %low
  %some = sub i64 %high, %low
  %bytes = mul i64 %some, {bytes}
  call void @llvm.memcpy.p0.p0.i64(ptr %to.low, ptr %from.low, i64 %bytes, i1 false)
  ret void
each:
  call void @copy_lanes_{bits}(ptr %to, i64 {bytes}, ptr %from, i64 %step, i64 %low, i64 %high)
  ret void
}

; The lanes at which all positions are inside of their axes; zeros elsewhere.
define void @guarded_{bits}(ptr %s, ptr %i) {
  %to = call ptr @slot(ptr %s, ptr %i, i64 2)
  %lanes = load i64, ptr %s
  %both = call { i64, i64 } @all_inside(ptr %s, ptr %i, i64 %lanes)
  %low = extractvalue { i64, i64 } %both, 0
  %high = extractvalue { i64, i64 } %both, 1
  %before = mul i64 %low, {bytes}
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %before, i1 false)
  %rest = sub i64 %lanes, %high
  %after = mul i64 %rest, {bytes}
  %end = getelementptr i{bits}, ptr %to, i64 %high
  call void @llvm.memset.p0.i64(ptr %end, i8 0, i64 %after, i1 false)
  call void @copy_some_{bits}(ptr %s, ptr %i, ptr %to, i64 %low, i64 %high)
  ret void
}

; The lanes at which all positions are inside of their axes; the others stay.
define void @merge_{bits}(ptr %s, ptr %i) {
  %to = call ptr @slot(ptr %s, ptr %i, i64 2)
  %lanes = load i64, ptr %s
  %both = call { i64, i64 } @all_inside(ptr %s, ptr %i, i64 %lanes)
  %low = extractvalue { i64, i64 } %both, 0
  %high = extractvalue { i64, i64 } %both, 1
  %some = icmp slt i64 %low, %high
  br i1 %some, label %copy, label %leave
copy:
  call void @copy_some_{bits}(ptr %s, ptr %i, ptr %to, i64 %low, i64 %high)
  br label %leave
leave:
  ret void
}

; Elements at an offset (3, the first of its lanes), zeros if the first of a mask (4) does not hold, unless it is -1.
define void @offset_{bits}(ptr %s, ptr %i) {
  %to = call ptr @slot(ptr %s, ptr %i, i64 2)
  %lanes = load i64, ptr %s
  %holds = call i1 @first_holds(ptr %s, ptr %i)
  br i1 %holds, label %copy, label %clear
copy:
  %base = call ptr @memory(ptr %s, ptr %i)
  %offsets = call ptr @slot(ptr %s, ptr %i, i64 3)
  %offset = load i64, ptr %offsets
  %from = getelementptr i{bits}, ptr %base, i64 %offset
  %step = call i64 @word(ptr %i, i64 8)
  call void @copy_lanes_{bits}(ptr %to, i64 {bytes}, ptr %from, i64 %step, i64 0, i64 %lanes)
  ret void
clear:
  %bytes = mul i64 %lanes, {bytes}
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %bytes, i1 false)
  ret void
}

; Elements at offsets (3, in elements) from a linear form, zeros at lanes where a mask (4) does not hold, unless it is -1.
define void @gather_{bits}(ptr %s, ptr %i) {
entry:
  %to = call ptr @slot(ptr %s, ptr %i, i64 2)
  %index = call ptr @slot(ptr %s, ptr %i, i64 3)
  %from = call ptr @memory(ptr %s, ptr %i)
  %lanes = load i64, ptr %s
  %step = call i64 @word(ptr %i, i64 8)
  %masked = call i64 @word(ptr %i, i64 4)
  %some = icmp sge i64 %masked, 0
  br i1 %some, label %mask, label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n.next, %loop ]
  %index.at = getelementptr i64, ptr %index, i64 %n
  %offset = load i64, ptr %index.at
  %moved = mul i64 %n, %step
  %lane.at = getelementptr i8, ptr %from, i64 %moved
  %from.at = getelementptr i{bits}, ptr %lane.at, i64 %offset
  %x = load i{bits}, ptr %from.at, align {bytes}
  %to.at = getelementptr i{bits}, ptr %to, i64 %n
  store i{bits} %x, ptr %to.at
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %lanes
  br i1 %more, label %loop, label %leave
mask:
  %holds = call ptr @slot(ptr %s, ptr %i, i64 4)
  br label %test
test:
  %k = phi i64 [ 0, %mask ], [ %k.next, %next ]
  %hold.at = getelementptr i8, ptr %holds, i64 %k
  %hold = load i8, ptr %hold.at
  %is_inside = icmp ne i8 %hold, 0
  br i1 %is_inside, label %read, label %next
read:
  %place.at = getelementptr i64, ptr %index, i64 %k
  %place = load i64, ptr %place.at
  %k.moved = mul i64 %k, %step
  %k.from = getelementptr i8, ptr %from, i64 %k.moved
  %y.at = getelementptr i{bits}, ptr %k.from, i64 %place
  %y = load i{bits}, ptr %y.at, align {bytes}
  br label %next
next:
  %z = phi i{bits} [ 0, %test ], [ %y, %read ]
  %z.at = getelementptr i{bits}, ptr %to, i64 %k
  store i{bits} %z, ptr %z.at
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, %lanes
  br i1 %k.more, label %test, label %leave
leave:
  ret void
}
