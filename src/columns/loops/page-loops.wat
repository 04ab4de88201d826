;; Loops over pages of Parquet, for page-loops.ts. Addresses are bytes, of which 0 is one like others. Whatever is not as
;; it should be ends a loop. Up to 3 bytes are read behind what is given: other memory lies there.
(module
  (import "memory" "memory" (memory 1))

  ;; Unpacks a block of Snappy, behind its length, into exactly the bytes from $to to $toEnd. 1: that is what it has;
  ;; 0: it is damaged. Where there is room for it, 16 bytes are copied at a time, and some behind the last one: what
  ;; comes next is written over them.
  (func (export "unpackSnappy")
    (param $from i32) (param $fromEnd i32) (param $to i32) (param $toEnd i32)
    (result i32)
    (local $begin i32) (local $end i32) (local $kind i32) (local $length i32) (local $distance i32) (local $bytes i32)
    (local.set $begin (local.get $to))
    (block $damaged
      (loop $next
        (if (i32.eq (local.get $from) (local.get $fromEnd))
          (then (return (i32.eq (local.get $to) (local.get $toEnd)))))
        (local.set $length (i32.load8_u (local.get $from)))
        (local.set $kind (i32.and (local.get $length) (i32.const 3)))
        (local.set $from (i32.add (local.get $from) (i32.const 1)))
        (if (i32.eqz (local.get $kind))
          (then
            ;; Bytes as they are: how many, less one,
            (local.set $length (i32.shr_u (local.get $length) (i32.const 2)))
            (if (i32.ge_u (local.get $length) (i32.const 60))
              (then
                (local.set $bytes (i32.sub (local.get $length) (i32.const 59)))
                (br_if $damaged (i32.gt_u (local.get $bytes) (i32.sub (local.get $fromEnd) (local.get $from))))
                (local.set $end (i32.add (local.get $from) (local.get $bytes)))
                (local.set $length (i32.const 0))
                (loop $byte ;; from the last one, which is the highest
                  (local.set $bytes (i32.sub (local.get $bytes) (i32.const 1)))
                  (local.set $length
                    (i32.or
                      (i32.shl (local.get $length) (i32.const 8))
                      (i32.load8_u (i32.add (local.get $from) (local.get $bytes)))))
                  (br_if $byte (local.get $bytes)))
                (local.set $from (local.get $end))))
            (br_if $damaged (i32.ge_u (local.get $length) (i32.sub (local.get $fromEnd) (local.get $from))))
            (br_if $damaged (i32.ge_u (local.get $length) (i32.sub (local.get $toEnd) (local.get $to))))
            (local.set $length (i32.add (local.get $length) (i32.const 1)))
            (local.set $end (i32.add (local.get $to) (local.get $length)))
            (if
              (i32.and
                (i32.le_u (local.get $length) (i32.const 64))
                (i32.and
                  (i32.ge_u (i32.sub (local.get $fromEnd) (local.get $from)) (i32.const 64))
                  (i32.ge_u (i32.sub (local.get $toEnd) (local.get $to)) (i32.const 64))))
              (then
                (local.set $distance (i32.sub (local.get $from) (local.get $to)))
                (loop $more
                  (v128.store (local.get $to) (v128.load (i32.add (local.get $to) (local.get $distance))))
                  (local.set $to (i32.add (local.get $to) (i32.const 16)))
                  (br_if $more (i32.lt_u (local.get $to) (local.get $end)))))
              (else
                (memory.copy (local.get $to) (local.get $from) (local.get $length))))
            (local.set $from (i32.add (local.get $from) (local.get $length)))
            (local.set $to (local.get $end))
            (br $next)))
        ;; Bytes that were there before: from how far,
        (local.set $bytes (i32.shl (i32.const 1) (i32.sub (local.get $kind) (i32.const 1))))
        (br_if $damaged (i32.gt_u (local.get $bytes) (i32.sub (local.get $fromEnd) (local.get $from))))
        (if (i32.eq (local.get $kind) (i32.const 1))
          (then
            (local.set $distance
              (i32.or
                (i32.shl (i32.shr_u (local.get $length) (i32.const 5)) (i32.const 8))
                (i32.load8_u (local.get $from))))
            (local.set $length
              (i32.add (i32.and (i32.shr_u (local.get $length) (i32.const 2)) (i32.const 7)) (i32.const 4))))
          (else
            (local.set $distance
              (if (result i32) (i32.eq (local.get $kind) (i32.const 2))
                (then (i32.load16_u (local.get $from)))
                (else (i32.load (local.get $from)))))
            (local.set $length (i32.add (i32.shr_u (local.get $length) (i32.const 2)) (i32.const 1)))))
        (local.set $from (i32.add (local.get $from) (local.get $bytes)))
        ;; 0 is further than any,
        (br_if $damaged
          (i32.ge_u (i32.sub (local.get $distance) (i32.const 1)) (i32.sub (local.get $to) (local.get $begin))))
        (br_if $damaged (i32.gt_u (local.get $length) (i32.sub (local.get $toEnd) (local.get $to))))
        (local.set $end (i32.add (local.get $to) (local.get $length)))
        (if (i32.lt_u (i32.sub (local.get $toEnd) (local.get $to)) (i32.const 64))
          (then
            (loop $more ;; maybe into what is made of them
              (i32.store8 (local.get $to) (i32.load8_u (i32.sub (local.get $to) (local.get $distance))))
              (local.set $to (i32.add (local.get $to) (i32.const 1)))
              (br_if $more (i32.lt_u (local.get $to) (local.get $end)))))
          (else
            (if (i32.ge_u (local.get $distance) (i32.const 16))
              (then
                (loop $more
                  (v128.store (local.get $to) (v128.load (i32.sub (local.get $to) (local.get $distance))))
                  (local.set $to (i32.add (local.get $to) (i32.const 16)))
                  (br_if $more (i32.lt_u (local.get $to) (local.get $end)))))
              (else
                (if (i32.lt_u (local.get $distance) (i32.const 8))
                  (then
                    ;; Eight, one by one: they repeat each other, so that the next are the same as some from further away.
                    (local.set $bytes (i32.add (local.get $to) (i32.const 8)))
                    (loop $more
                      (i32.store8 (local.get $to) (i32.load8_u (i32.sub (local.get $to) (local.get $distance))))
                      (local.set $to (i32.add (local.get $to) (i32.const 1)))
                      (br_if $more (i32.lt_u (local.get $to) (local.get $bytes))))
                    (local.set $distance
                      (i32.mul
                        (local.get $distance)
                        (i32.add (i32.div_u (i32.const 7) (local.get $distance)) (i32.const 1))))))
                (block $through
                  (loop $more
                    (br_if $through (i32.ge_u (local.get $to) (local.get $end)))
                    (i64.store (local.get $to) (i64.load (i32.sub (local.get $to) (local.get $distance))))
                    (local.set $to (i32.add (local.get $to) (i32.const 8)))
                    (br $more)))))))
        (local.set $to (local.get $end))
        (br $next)))
    (i32.const 0))

  ;; What is left of runs of small numbers (https://github.com/apache/parquet-format/blob/master/Encodings.md#RLE) lies
  ;; at $state: where the next one begins, how many numbers are due in all, how many are left of this run, where its
  ;; packed numbers begin, or 0, the number that it repeats, or the bits of it that are through. Numbers have $width
  ;; bits, at most 24; runs end at $end.
  ;;
  ;; Looks up the next $count numbers, and puts what they stand for at $to: of $entries entries at $entry, 4 ($shift is
  ;; 2) or 8 bytes (3) each. $to is -1: passes over them. Returns 0: it is damaged.
  (func (export "takeRuns")
    (param $state i32) (param $end i32) (param $width i32) (param $count i32)
    (param $to i32) (param $entry i32) (param $entries i32) (param $shift i32)
    (result i32)
    (local $at i32) (local $due i32) (local $left i32) (local $packed i32) (local $value i32)
    (local $head i32) (local $bits i32) (local $byte i32) (local $length i32) (local $mask i32) (local $stop i32)
    (local $wide i64)
    (local.set $at (i32.load (local.get $state)))
    (local.set $due (i32.load offset=4 (local.get $state)))
    (local.set $left (i32.load offset=8 (local.get $state)))
    (local.set $packed (i32.load offset=12 (local.get $state)))
    (local.set $value (i32.load offset=16 (local.get $state)))
    (local.set $mask (i32.sub (i32.shl (i32.const 1) (local.get $width)) (i32.const 1)))
    (block $damaged
      (br_if $damaged (i32.gt_u (local.get $count) (local.get $due)))
      (block $through
        (loop $next
          (br_if $through (i32.eqz (local.get $count)))
          (if (i32.eqz (local.get $left))
            (then
              ;; A run begins: its head is a varint, of which 28 bits are enough,
              (local.set $head (i32.const 0))
              (local.set $bits (i32.const 0))
              (loop $more
                (br_if $damaged (i32.ge_u (local.get $at) (local.get $end)))
                (br_if $damaged (i32.eq (local.get $bits) (i32.const 28)))
                (local.set $byte (i32.load8_u (local.get $at)))
                (local.set $at (i32.add (local.get $at) (i32.const 1)))
                (local.set $head
                  (i32.or
                    (local.get $head)
                    (i32.shl (i32.and (local.get $byte) (i32.const 127)) (local.get $bits))))
                (local.set $bits (i32.add (local.get $bits) (i32.const 7)))
                (br_if $more (i32.ge_u (local.get $byte) (i32.const 128))))
              (local.set $length (i32.shr_u (local.get $head) (i32.const 1)))
              (br_if $damaged (i32.eqz (local.get $length)))
              (if (i32.and (local.get $head) (i32.const 1))
                (then
                  ;; packed, by eights, of which the last may not all be there,
                  (br_if $damaged (i32.ge_u (local.get $length) (i32.const 0x1000000)))
                  (local.set $packed (local.get $at))
                  (local.set $value (i32.const 0))
                  (local.set $at (i32.add (local.get $at) (i32.mul (local.get $length) (local.get $width))))
                  (local.set $left (i32.shl (local.get $length) (i32.const 3)))
                  (if (i32.gt_u (local.get $left) (local.get $due))
                    (then
                      (br_if $damaged
                        (i32.and
                          (i32.ge_u (local.get $left) (i32.add (local.get $due) (i32.const 8)))
                          (i32.gt_u (local.get $at) (local.get $end))))
                      (local.set $left (local.get $due))))
                  (br_if $damaged
                    (i64.gt_u
                      (i64.add
                        (i64.extend_i32_u (local.get $packed))
                        (i64.shr_u
                          (i64.add
                            (i64.mul (i64.extend_i32_u (local.get $left)) (i64.extend_i32_u (local.get $width)))
                            (i64.const 7))
                          (i64.const 3)))
                      (i64.extend_i32_u (local.get $end)))))
                (else
                  ;; or one number, in whole bytes.
                  (local.set $packed (i32.const 0))
                  (local.set $left (local.get $length))
                  (br_if $damaged (i32.gt_u (local.get $left) (local.get $due)))
                  (local.set $length (i32.shr_u (i32.add (local.get $width) (i32.const 7)) (i32.const 3)))
                  (br_if $damaged (i32.gt_u (local.get $length) (i32.sub (local.get $end) (local.get $at))))
                  (local.set $value (i32.const 0))
                  (local.set $bits (i32.const 0))
                  (block $whole
                    (loop $more
                      (br_if $whole (i32.eqz (local.get $length)))
                      (local.set $value
                        (i32.or
                          (local.get $value)
                          (i32.shl (i32.load8_u (local.get $at)) (local.get $bits))))
                      (local.set $at (i32.add (local.get $at) (i32.const 1)))
                      (local.set $bits (i32.add (local.get $bits) (i32.const 8)))
                      (local.set $length (i32.sub (local.get $length) (i32.const 1)))
                      (br $more)))
                  (br_if $damaged (i32.gt_u (local.get $value) (local.get $mask)))
                  (br_if $damaged (i32.ge_u (local.get $value) (local.get $entries)))))))
          (local.set $length (select
            (local.get $left)
            (local.get $count)
            (i32.lt_u (local.get $left) (local.get $count))))
          (local.set $left (i32.sub (local.get $left) (local.get $length)))
          (local.set $due (i32.sub (local.get $due) (local.get $length)))
          (local.set $count (i32.sub (local.get $count) (local.get $length)))
          (if (i32.eq (local.get $to) (i32.const -1))
            (then
              (if (local.get $packed)
                (then
                  (local.set $value
                    (i32.add (local.get $value) (i32.mul (local.get $length) (local.get $width))))))
              (br $next)))
          (local.set $stop (i32.add (local.get $to) (i32.shl (local.get $length) (local.get $shift))))
          (if (local.get $packed)
            (then
              (if (i32.eq (local.get $shift) (i32.const 2))
                (then
                  (loop $each
                    (local.set $byte
                      (i32.and
                        (i32.shr_u
                          (i32.load (i32.add (local.get $packed) (i32.shr_u (local.get $value) (i32.const 3))))
                          (i32.and (local.get $value) (i32.const 7)))
                        (local.get $mask)))
                    (br_if $damaged (i32.ge_u (local.get $byte) (local.get $entries)))
                    (i32.store (local.get $to)
                      (i32.load (i32.add (local.get $entry) (i32.shl (local.get $byte) (i32.const 2)))))
                    (local.set $value (i32.add (local.get $value) (local.get $width)))
                    (local.set $to (i32.add (local.get $to) (i32.const 4)))
                    (br_if $each (i32.ne (local.get $to) (local.get $stop)))))
                (else
                  (loop $each
                    (local.set $byte
                      (i32.and
                        (i32.shr_u
                          (i32.load (i32.add (local.get $packed) (i32.shr_u (local.get $value) (i32.const 3))))
                          (i32.and (local.get $value) (i32.const 7)))
                        (local.get $mask)))
                    (br_if $damaged (i32.ge_u (local.get $byte) (local.get $entries)))
                    (i64.store (local.get $to)
                      (i64.load (i32.add (local.get $entry) (i32.shl (local.get $byte) (i32.const 3)))))
                    (local.set $value (i32.add (local.get $value) (local.get $width)))
                    (local.set $to (i32.add (local.get $to) (i32.const 8)))
                    (br_if $each (i32.ne (local.get $to) (local.get $stop)))))))
            (else
              (if (i32.eq (local.get $shift) (i32.const 2))
                (then
                  (local.set $byte
                    (i32.load (i32.add (local.get $entry) (i32.shl (local.get $value) (i32.const 2)))))
                  (loop $each
                    (i32.store (local.get $to) (local.get $byte))
                    (local.set $to (i32.add (local.get $to) (i32.const 4)))
                    (br_if $each (i32.ne (local.get $to) (local.get $stop)))))
                (else
                  (local.set $wide
                    (i64.load (i32.add (local.get $entry) (i32.shl (local.get $value) (i32.const 3)))))
                  (loop $each
                    (i64.store (local.get $to) (local.get $wide))
                    (local.set $to (i32.add (local.get $to) (i32.const 8)))
                    (br_if $each (i32.ne (local.get $to) (local.get $stop))))))))
          (br $next)))
      (br_if $damaged
        (i32.and (i32.eqz (local.get $due)) (i32.lt_u (local.get $at) (local.get $end))))
      (i32.store (local.get $state) (local.get $at))
      (i32.store offset=4 (local.get $state) (local.get $due))
      (i32.store offset=8 (local.get $state) (local.get $left))
      (i32.store offset=12 (local.get $state) (local.get $packed))
      (i32.store offset=16 (local.get $state) (local.get $value))
      (return (i32.const 1)))
    (i32.const 0))

  ;; Reads runs of numbers of one bit from $at to $end into $count bytes of 0 or 1 from $to on, behind which up to 7 more
  ;; are written. Returns how many are 1; -1: the runs are damaged.
  (func (export "readBits") (param $at i32) (param $end i32) (param $to i32) (param $count i32) (result i32)
    (local $head i32) (local $bits i32) (local $byte i32) (local $length i32) (local $stop i32) (local $ones i32)
    (local $behind i32)
    (block $damaged
      (block $through
        (loop $next
          (br_if $through (i32.eqz (local.get $count)))
          (local.set $head (i32.const 0))
          (local.set $bits (i32.const 0))
          (loop $more
            (br_if $damaged (i32.ge_u (local.get $at) (local.get $end)))
            (br_if $damaged (i32.eq (local.get $bits) (i32.const 28)))
            (local.set $byte (i32.load8_u (local.get $at)))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (local.set $head
              (i32.or
                (local.get $head)
                (i32.shl (i32.and (local.get $byte) (i32.const 127)) (local.get $bits))))
            (local.set $bits (i32.add (local.get $bits) (i32.const 7)))
            (br_if $more (i32.ge_u (local.get $byte) (i32.const 128))))
          (local.set $length (i32.shr_u (local.get $head) (i32.const 1)))
          (br_if $damaged (i32.eqz (local.get $length)))
          (if (i32.and (local.get $head) (i32.const 1))
            (then
              (br_if $damaged (i32.ge_u (local.get $length) (i32.const 0x1000000)))
              (local.set $behind (i32.add (local.get $at) (local.get $length)))
              (local.set $length (i32.shl (local.get $length) (i32.const 3)))
              (if (i32.gt_u (local.get $length) (local.get $count))
                (then
                  (br_if $damaged
                    (i32.and
                      (i32.ge_u (local.get $length) (i32.add (local.get $count) (i32.const 8)))
                      (i32.gt_u (local.get $behind) (local.get $end))))
                  (local.set $length (local.get $count))))
              (br_if $damaged
                (i32.gt_u
                  (i32.shr_u (i32.add (local.get $length) (i32.const 7)) (i32.const 3))
                  (i32.sub (local.get $end) (local.get $at))))
              (local.set $count (i32.sub (local.get $count) (local.get $length)))
              ;; A byte's bits become eight bytes: each its own bit, then 1 where that is set.
              (loop $eight
                (local.set $byte (i32.load8_u (local.get $at)))
                (if (i32.lt_u (local.get $length) (i32.const 8))
                  (then
                    (local.set $byte
                      (i32.and
                        (local.get $byte)
                        (i32.sub (i32.shl (i32.const 1) (local.get $length)) (i32.const 1))))))
                (local.set $ones (i32.add (local.get $ones) (i32.popcnt (local.get $byte))))
                (i64.store (local.get $to)
                  (i64.and
                    (i64.shr_u
                      (i64.add
                        (i64.and
                          (i64.mul (i64.extend_i32_u (local.get $byte)) (i64.const 0x0101010101010101))
                          (i64.const 0x8040201008040201))
                        (i64.const 0x7f7f7f7f7f7f7f7f))
                      (i64.const 7))
                    (i64.const 0x0101010101010101)))
                (local.set $at (i32.add (local.get $at) (i32.const 1)))
                (if (i32.le_u (local.get $length) (i32.const 8))
                  (then
                    (local.set $to (i32.add (local.get $to) (local.get $length))))
                  (else
                    (local.set $to (i32.add (local.get $to) (i32.const 8)))
                    (local.set $length (i32.sub (local.get $length) (i32.const 8)))
                    (br $eight))))
              (local.set $at (local.get $behind)))
            (else
              (br_if $damaged (i32.gt_u (local.get $length) (local.get $count)))
              (br_if $damaged (i32.ge_u (local.get $at) (local.get $end)))
              (local.set $byte (i32.load8_u (local.get $at)))
              (local.set $at (i32.add (local.get $at) (i32.const 1)))
              (br_if $damaged (i32.gt_u (local.get $byte) (i32.const 1)))
              (memory.fill (local.get $to) (local.get $byte) (local.get $length))
              (local.set $to (i32.add (local.get $to) (local.get $length)))
              (local.set $count (i32.sub (local.get $count) (local.get $length)))
              (if (local.get $byte)
                (then
                  (local.set $ones (i32.add (local.get $ones) (local.get $length)))))))
          (br $next)))
      (br_if $damaged (i32.lt_u (local.get $at) (local.get $end)))
      (return (local.get $ones)))
    (i32.const -1))

  ;; Puts the places of the zeros among $count numbers of one bit, the runs in bytes from $at to $end, from $to on: four
  ;; bytes each, at most $capacity of them. $to is -1: they are only counted. How many there are; -1: the runs are damaged,
  ;; have more numbers or fewer, or there are more zeros.
  (func (export "findZeros")
    (param $at i32) (param $end i32) (param $to i32) (param $capacity i32) (param $count i32)
    (result i32)
    (local $head i32) (local $bits i32) (local $byte i32) (local $length i32) (local $behind i32) (local $passed i32)
    (local $zeros i32)
    (block $damaged
      (block $through
        (loop $next
          (br_if $through (i32.eq (local.get $passed) (local.get $count)))
          (local.set $head (i32.const 0))
          (local.set $bits (i32.const 0))
          (loop $more
            (br_if $damaged (i32.ge_u (local.get $at) (local.get $end)))
            (br_if $damaged (i32.eq (local.get $bits) (i32.const 28)))
            (local.set $byte (i32.load8_u (local.get $at)))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (local.set $head
              (i32.or
                (local.get $head)
                (i32.shl (i32.and (local.get $byte) (i32.const 127)) (local.get $bits))))
            (local.set $bits (i32.add (local.get $bits) (i32.const 7)))
            (br_if $more (i32.ge_u (local.get $byte) (i32.const 128))))
          (local.set $length (i32.shr_u (local.get $head) (i32.const 1)))
          (br_if $damaged (i32.eqz (local.get $length)))
          (if (i32.and (local.get $head) (i32.const 1))
            (then
              (br_if $damaged (i32.ge_u (local.get $length) (i32.const 0x1000000)))
              (local.set $behind (i32.add (local.get $at) (local.get $length)))
              (local.set $length (i32.shl (local.get $length) (i32.const 3)))
              (if (i32.gt_u (local.get $length) (i32.sub (local.get $count) (local.get $passed)))
                (then
                  (br_if $damaged
                    (i32.and
                      (i32.ge_u
                        (local.get $length)
                        (i32.add (i32.sub (local.get $count) (local.get $passed)) (i32.const 8)))
                      (i32.gt_u (local.get $behind) (local.get $end))))
                  (local.set $length (i32.sub (local.get $count) (local.get $passed)))))
              (br_if $damaged
                (i32.gt_u
                  (i32.shr_u (i32.add (local.get $length) (i32.const 7)) (i32.const 3))
                  (i32.sub (local.get $end) (local.get $at))))
              (loop $eight
                (local.set $byte (i32.xor (i32.load8_u (local.get $at)) (i32.const 255)))
                (if (i32.lt_u (local.get $length) (i32.const 8))
                  (then
                    (local.set $byte
                      (i32.and
                        (local.get $byte)
                        (i32.sub (i32.shl (i32.const 1) (local.get $length)) (i32.const 1))))))
                (local.set $zeros (i32.add (local.get $zeros) (i32.popcnt (local.get $byte))))
                (if (i32.ne (local.get $to) (i32.const -1))
                  (then
                    (br_if $damaged (i32.gt_u (local.get $zeros) (local.get $capacity)))
                    (block $put
                      (loop $zero
                        (br_if $put (i32.eqz (local.get $byte)))
                        (i32.store (local.get $to) (i32.add (local.get $passed) (i32.ctz (local.get $byte))))
                        (local.set $to (i32.add (local.get $to) (i32.const 4)))
                        (local.set $byte (i32.and (local.get $byte) (i32.sub (local.get $byte) (i32.const 1))))
                        (br $zero)))))
                (local.set $at (i32.add (local.get $at) (i32.const 1)))
                (if (i32.gt_u (local.get $length) (i32.const 8))
                  (then
                    (local.set $passed (i32.add (local.get $passed) (i32.const 8)))
                    (local.set $length (i32.sub (local.get $length) (i32.const 8)))
                    (br $eight))))
              (local.set $at (local.get $behind)))
            (else
              (br_if $damaged (i32.gt_u (local.get $length) (i32.sub (local.get $count) (local.get $passed))))
              (br_if $damaged (i32.ge_u (local.get $at) (local.get $end)))
              (local.set $byte (i32.load8_u (local.get $at)))
              (local.set $at (i32.add (local.get $at) (i32.const 1)))
              (br_if $damaged (i32.gt_u (local.get $byte) (i32.const 1)))
              (if (i32.eqz (local.get $byte))
                (then
                  (local.set $zeros (i32.add (local.get $zeros) (local.get $length)))
                  (if (i32.ne (local.get $to) (i32.const -1))
                    (then
                      (br_if $damaged (i32.gt_u (local.get $zeros) (local.get $capacity)))
                      (loop $zero
                        (i32.store (local.get $to) (local.get $passed))
                        (local.set $to (i32.add (local.get $to) (i32.const 4)))
                        (local.set $passed (i32.add (local.get $passed) (i32.const 1)))
                        (local.set $length (i32.sub (local.get $length) (i32.const 1)))
                        (br_if $zero (local.get $length)))))))))
          (local.set $passed (i32.add (local.get $passed) (local.get $length)))
          (br $next)))
      (br_if $damaged (i32.lt_u (local.get $at) (local.get $end)))
      (return (local.get $zeros)))
    (i32.const -1))

  ;; Puts $count values, of 4 ($shift is 2) or 8 bytes (3), that lie from $at on, where $valid has a byte of 1 for each of
  ;; $rows rows, and 0 for the others: from the last one on, since there are at least as many rows.
  (func (export "spread")
    (param $at i32) (param $count i32) (param $valid i32) (param $rows i32) (param $shift i32)
    (local $is i32)
    (block $through
      (loop $next
        (br_if $through (i32.eqz (local.get $rows)))
        (local.set $rows (i32.sub (local.get $rows) (i32.const 1)))
        (local.set $is (i32.load8_u (i32.add (local.get $valid) (local.get $rows))))
        (local.set $count (i32.sub (local.get $count) (local.get $is)))
        (if (i32.eq (local.get $shift) (i32.const 2))
          (then
            (i32.store (i32.add (local.get $at) (i32.shl (local.get $rows) (i32.const 2)))
              (i32.mul
                (local.get $is)
                (i32.load (i32.add (local.get $at) (i32.shl (local.get $count) (i32.const 2)))))))
          (else
            (i64.store (i32.add (local.get $at) (i32.shl (local.get $rows) (i32.const 3)))
              (i64.mul
                (i64.extend_i32_u (local.get $is))
                (i64.load (i32.add (local.get $at) (i32.shl (local.get $count) (i32.const 3))))))))
        (br $next))))

  ;; How many of $rows bytes of 0 or 1 are 1.
  (func (export "countOnes") (param $at i32) (param $rows i32) (result i32)
    (local $end i32) (local $ones i32)
    (local.set $end (i32.add (local.get $at) (i32.and (local.get $rows) (i32.const -8))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (local.set $ones
          (i32.add (local.get $ones) (i32.wrap_i64 (i64.popcnt (i64.load (local.get $at))))))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (br $next)))
    (local.set $end (i32.add (local.get $at) (i32.and (local.get $rows) (i32.const 7))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (local.set $ones (i32.add (local.get $ones) (i32.load8_u (local.get $at))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (local.get $ones)))
