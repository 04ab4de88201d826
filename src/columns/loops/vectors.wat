;; Loops over floats (f32) with the processor's vectors, for vectors.ts. Addresses and strides are bytes.
;;
;; A float is not finite exactly where all bits of its exponent are set (IEEE 754). Then, without its sign and with the
;; lowest bit of the exponent added, it carries into the sign: looking costs three operations for four floats. They are
;; written out: V8 of Node 20 would call a function of them for each vector, which takes eight times as long.
(module
  (memory (export "memory") 4096) ;; pages of 64 KiB, 256 MiB in all: of no cost before they are written to

  ;; 1: one of `count` floats is not finite; 0: all are.
  (func (export "anyNotFinite") (param $at i32) (param $count i32) (result i32)
    (local $end i32) (local $told v128) (local $unsigned v128) (local $lowest v128)
    (local.set $unsigned (v128.const i32x4 0x7fffffff 0x7fffffff 0x7fffffff 0x7fffffff))
    (local.set $lowest (v128.const i32x4 0x00800000 0x00800000 0x00800000 0x00800000))
    ;; Sixteen at a time,
    (local.set $end (i32.add (local.get $at) (i32.shl (i32.and (local.get $count) (i32.const -16)) (i32.const 2))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (local.set $told
          (v128.or (local.get $told)
            (v128.or
              (v128.or
                (i32x4.add (v128.and (v128.load offset=0 (local.get $at)) (local.get $unsigned)) (local.get $lowest))
                (i32x4.add (v128.and (v128.load offset=16 (local.get $at)) (local.get $unsigned)) (local.get $lowest)))
              (v128.or
                (i32x4.add (v128.and (v128.load offset=32 (local.get $at)) (local.get $unsigned)) (local.get $lowest))
                (i32x4.add (v128.and (v128.load offset=48 (local.get $at)) (local.get $unsigned)) (local.get $lowest))))))
        (local.set $at (i32.add (local.get $at) (i32.const 64)))
        (br $next)))
    ;; then one by one.
    (local.set $end (i32.add (local.get $at) (i32.shl (i32.and (local.get $count) (i32.const 15)) (i32.const 2))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (local.set $told
          (v128.or (local.get $told)
            (i32x4.add (v128.and (v128.load32_zero (local.get $at)) (local.get $unsigned)) (local.get $lowest))))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (br $next)))
    (i32.ne (i32x4.bitmask (local.get $told)) (i32.const 0)))

  ;; Puts `rows` values of four columns side by side, rows `stride` apart. 1: one of them is not finite; 0: all are.
  (func (export "packFour")
    (param $to i32) (param $stride i32)
    (param $a i32) (param $b i32) (param $c i32) (param $d i32)
    (param $rows i32)
    (result i32)
    (local $end i32) (local $told v128) (local $unsigned v128) (local $lowest v128)
    (local $as v128) (local $bs v128) (local $cs v128) (local $ds v128)
    (local $abLow v128) (local $abHigh v128) (local $cdLow v128) (local $cdHigh v128)
    (local.set $unsigned (v128.const i32x4 0x7fffffff 0x7fffffff 0x7fffffff 0x7fffffff))
    (local.set $lowest (v128.const i32x4 0x00800000 0x00800000 0x00800000 0x00800000))
    ;; Four rows at a time: four vectors of a column each become four of a row each,
    (local.set $end (i32.add (local.get $a) (i32.shl (i32.and (local.get $rows) (i32.const -4)) (i32.const 2))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $a) (local.get $end)))
        (local.set $as (v128.load (local.get $a)))
        (local.set $bs (v128.load (local.get $b)))
        (local.set $cs (v128.load (local.get $c)))
        (local.set $ds (v128.load (local.get $d)))
        (local.set $told
          (v128.or (local.get $told)
            (v128.or
              (v128.or
                (i32x4.add (v128.and (local.get $as) (local.get $unsigned)) (local.get $lowest))
                (i32x4.add (v128.and (local.get $bs) (local.get $unsigned)) (local.get $lowest)))
              (v128.or
                (i32x4.add (v128.and (local.get $cs) (local.get $unsigned)) (local.get $lowest))
                (i32x4.add (v128.and (local.get $ds) (local.get $unsigned)) (local.get $lowest))))))
        ;; a0 b0 a1 b1, a2 b2 a3 b3,
        (local.set $abLow
          (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $as) (local.get $bs)))
        (local.set $abHigh
          (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $as) (local.get $bs)))
        (local.set $cdLow
          (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $cs) (local.get $ds)))
        (local.set $cdHigh
          (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $cs) (local.get $ds)))
        ;; a0 b0 c0 d0, and so on.
        (v128.store (local.get $to)
          (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $abLow) (local.get $cdLow)))
        (local.set $to (i32.add (local.get $to) (local.get $stride)))
        (v128.store (local.get $to)
          (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $abLow) (local.get $cdLow)))
        (local.set $to (i32.add (local.get $to) (local.get $stride)))
        (v128.store (local.get $to)
          (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $abHigh) (local.get $cdHigh)))
        (local.set $to (i32.add (local.get $to) (local.get $stride)))
        (v128.store (local.get $to)
          (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $abHigh) (local.get $cdHigh)))
        (local.set $to (i32.add (local.get $to) (local.get $stride)))
        (local.set $a (i32.add (local.get $a) (i32.const 16)))
        (local.set $b (i32.add (local.get $b) (i32.const 16)))
        (local.set $c (i32.add (local.get $c) (i32.const 16)))
        (local.set $d (i32.add (local.get $d) (i32.const 16)))
        (br $next)))
    ;; then one by one.
    (local.set $end (i32.add (local.get $a) (i32.shl (i32.and (local.get $rows) (i32.const 3)) (i32.const 2))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $a) (local.get $end)))
        (local.set $as (v128.load32_zero (local.get $a)))
        (local.set $as (v128.load32_lane 1 (local.get $b) (local.get $as)))
        (local.set $as (v128.load32_lane 2 (local.get $c) (local.get $as)))
        (local.set $as (v128.load32_lane 3 (local.get $d) (local.get $as)))
        (local.set $told
          (v128.or (local.get $told)
            (i32x4.add (v128.and (local.get $as) (local.get $unsigned)) (local.get $lowest))))
        (v128.store (local.get $to) (local.get $as))
        (local.set $to (i32.add (local.get $to) (local.get $stride)))
        (local.set $a (i32.add (local.get $a) (i32.const 4)))
        (local.set $b (i32.add (local.get $b) (i32.const 4)))
        (local.set $c (i32.add (local.get $c) (i32.const 4)))
        (local.set $d (i32.add (local.get $d) (i32.const 4)))
        (br $next)))
    (i32.ne (i32x4.bitmask (local.get $told)) (i32.const 0)))

  ;; Rounds $count doubles (f64) from $at on to floats from $to on.
  (func (export "floatsOfDoubles") (param $at i32) (param $count i32) (param $to i32)
    (local $end i32)
    (local.set $end (i32.add (local.get $at) (i32.shl (i32.and (local.get $count) (i32.const -4)) (i32.const 3))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (v128.store (local.get $to)
          (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23
            (f32x4.demote_f64x2_zero (v128.load (local.get $at)))
            (f32x4.demote_f64x2_zero (v128.load offset=16 (local.get $at)))))
        (local.set $at (i32.add (local.get $at) (i32.const 32)))
        (local.set $to (i32.add (local.get $to) (i32.const 16)))
        (br $next)))
    (local.set $end (i32.add (local.get $at) (i32.shl (i32.and (local.get $count) (i32.const 3)) (i32.const 3))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (f32.store (local.get $to) (f32.demote_f64 (f64.load (local.get $at))))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $to (i32.add (local.get $to) (i32.const 4)))
        (br $next))))

  ;; Makes floats from $to on of $count whole numbers with a sign from $at on, each of 32 bits. 0: they are those numbers;
  ;; else one may not be: with 2^24 added it has more than 25 bits.
  (func (export "floatsOfInts") (param $at i32) (param $count i32) (param $to i32) (result i32)
    (local $end i32) (local $told v128) (local $vector v128) (local $half v128)
    (local.set $half (v128.const i32x4 0x1000000 0x1000000 0x1000000 0x1000000))
    (local.set $end (i32.add (local.get $at) (i32.shl (i32.and (local.get $count) (i32.const -4)) (i32.const 2))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (local.set $vector (v128.load (local.get $at)))
        (local.set $told
          (v128.or (local.get $told)
            (i32x4.shr_u (i32x4.add (local.get $vector) (local.get $half)) (i32.const 25))))
        (v128.store (local.get $to) (f32x4.convert_i32x4_s (local.get $vector)))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (local.set $to (i32.add (local.get $to) (i32.const 16)))
        (br $next)))
    (local.set $end (i32.add (local.get $at) (i32.shl (i32.and (local.get $count) (i32.const 3)) (i32.const 2))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (local.set $vector (v128.load32_zero (local.get $at)))
        (local.set $told
          (v128.or (local.get $told)
            (i32x4.shr_u (i32x4.add (local.get $vector) (local.get $half)) (i32.const 25))))
        (f32.store (local.get $to) (f32.convert_i32_s (i32.load (local.get $at))))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (local.set $to (i32.add (local.get $to) (i32.const 4)))
        (br $next)))
    (v128.any_true (local.get $told)))

  ;; The same of numbers of 64 bits.
  (func (export "floatsOfLongs") (param $at i32) (param $count i32) (param $to i32) (result i32)
    (local $end i32) (local $told v128) (local $first v128) (local $second v128) (local $half v128)
    (local.set $half (v128.const i64x2 0x1000000 0x1000000))
    (local.set $end (i32.add (local.get $at) (i32.shl (i32.and (local.get $count) (i32.const -4)) (i32.const 3))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (local.set $first (v128.load (local.get $at)))
        (local.set $second (v128.load offset=16 (local.get $at)))
        (local.set $told
          (v128.or (local.get $told)
            (v128.or
              (i64x2.shr_u (i64x2.add (local.get $first) (local.get $half)) (i32.const 25))
              (i64x2.shr_u (i64x2.add (local.get $second) (local.get $half)) (i32.const 25)))))
        (v128.store (local.get $to)
          (f32x4.convert_i32x4_s
            (i8x16.shuffle 0 1 2 3 8 9 10 11 16 17 18 19 24 25 26 27 (local.get $first) (local.get $second))))
        (local.set $at (i32.add (local.get $at) (i32.const 32)))
        (local.set $to (i32.add (local.get $to) (i32.const 16)))
        (br $next)))
    (local.set $end (i32.add (local.get $at) (i32.shl (i32.and (local.get $count) (i32.const 3)) (i32.const 3))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (local.set $first (v128.load64_zero (local.get $at)))
        (local.set $told
          (v128.or (local.get $told)
            (i64x2.shr_u (i64x2.add (local.get $first) (local.get $half)) (i32.const 25))))
        (f32.store (local.get $to) (f32.convert_i64_s (i64.load (local.get $at))))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $to (i32.add (local.get $to) (i32.const 4)))
        (br $next)))
    (v128.any_true (local.get $told))))
